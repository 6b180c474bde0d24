package migrate

import (
	"fmt"
	"strings"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/schema"
)

// A Format is a migration tool's file layout.
type Format string

// The formats [Files] writes.
const (
	Plain         Format = "plain"          // one script for psql
	Goose         Format = "goose"          // github.com/pressly/goose
	Tern          Format = "tern"           // github.com/jackc/tern
	GolangMigrate Format = "golang-migrate" // github.com/golang-migrate/migrate
)

// Formats lists them, for help texts.
func Formats() []Format { return []Format{Plain, Goose, Tern, GolangMigrate} }

// A File is one migration file to write.
type File struct{ Name, Text string }

// lockTimeout opens each rendered script, as it opens our own transactions. Every tool runs a file in one transaction:
// goose and tern open it, golang-migrate sends the file as one multi-statement query.
const lockTimeout = "set local lock_timeout = '5s';\n\n"

// Files renders every version above from for another migration tool. The files carry Pawl's own version record, so
// that [Check] works whoever applied them.
func Files(format Format, from int) ([]File, error) {
	var render func(v schema.Version) []File
	switch format {
	case Plain:
		return []File{{"pawl.sql", plain(from)}}, nil
	case Goose:
		render = goose
	case Tern:
		render = tern
	case GolangMigrate:
		render = golangMigrate
	default:
		return nil, &pawl.Error{Op: "migrate.print", Code: pawl.CodeArgumentInvalid,
			Err: fmt.Errorf("unknown format %q", format), Hint: fmt.Sprintf("one of %v", Formats())}
	}
	var files []File
	for _, v := range versionsAfter(from) {
		files = append(files, render(v)...)
	}
	return files, nil
}

func versionsAfter(from int) []schema.Version {
	var later []schema.Version
	for _, v := range schema.Versions() {
		if v.Number > from {
			later = append(later, v)
		}
	}
	return later
}

func plain(from int) string {
	var s strings.Builder
	s.WriteString("-- Pawl's schema, generated from schema/. Apply with: psql -v ON_ERROR_STOP=1 -f pawl.sql\n")
	for _, v := range versionsAfter(from) {
		fmt.Fprintf(&s, "\nbegin;\n%s%s\ncommit;\n", lockTimeout, v.Script())
	}
	return s.String()
}

func goose(v schema.Version) []File {
	text := "-- +goose Up\n-- +goose StatementBegin\n" + lockTimeout + v.Script() + "-- +goose StatementEnd\n\n" +
		"-- +goose Down\n-- +goose StatementBegin\n" + lockTimeout + v.DownScript() + "-- +goose StatementEnd\n"
	return []File{{fmt.Sprintf("%05d_pawl_%s.sql", v.Number, v.Name), text}}
}

func tern(v schema.Version) []File {
	text := lockTimeout + v.Script() + "\n---- create above / drop below ----\n\n" + lockTimeout + v.DownScript()
	return []File{{fmt.Sprintf("%03d_pawl_%s.sql", v.Number, v.Name), text}}
}

func golangMigrate(v schema.Version) []File {
	base := fmt.Sprintf("%06d_pawl_%s", v.Number, v.Name)
	return []File{{base + ".up.sql", lockTimeout + v.Script()}, {base + ".down.sql", lockTimeout + v.DownScript()}}
}
