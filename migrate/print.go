package migrate

import (
	"errors"
	"fmt"
	"strings"
	"time"

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

// Formats lists the formats, for help texts.
func Formats() []Format { return []Format{Plain, Goose, Tern, GolangMigrate} }

// A File is one migration file to write.
type File struct{ Name, Text string }

// lockTimeout begins each rendered script, like Pawl's own migration transactions. Every tool runs
// a file in one transaction: goose and tern begin it, and golang-migrate sends the file as one
// multi-statement query.
const lockTimeout = "set local lock_timeout = '5s';\n\n"

// Numbering numbers the files of [Files]. The zero value uses Pawl's own versions, from 1. Set at
// most one field.
type Numbering struct {
	// Start is the number of the first file, 1 to 2,147,000,000; the others follow without gaps. If
	// the files stand among your own migrations, use your last number plus one. Tern requires
	// exactly that, because its numbers have no gaps.
	Start int
	// At numbers the files by time, as 20060102150405 in UTC, one second apart. Tern does not
	// support it, because its numbers have no gaps.
	At time.Time
}

// maxStart leaves room for later versions in tern's 32-bit numbers.
const maxStart = 2_147_000_000

func (n Numbering) check(format Format) error {
	switch {
	case n.Start < 0 || n.Start > maxStart:
		return fmt.Errorf("the first number must lie between 1 and %d, it is %d", maxStart, n.Start)
	case n.Start > 0 && !n.At.IsZero():
		return errors.New("files are numbered from a start or by time, not both")
	case format == Plain && n != (Numbering{}):
		return errors.New("the format plain is one script without a number")
	case format == Tern && !n.At.IsZero():
		return errors.New("tern numbers migrations without gaps: no times")
	}
	return nil
}

// of returns the number of file i, which holds version v, with at least the given digits.
func (n Numbering) of(i int, v schema.Version, digits int) string {
	switch {
	case !n.At.IsZero():
		return n.At.UTC().Add(time.Duration(i) * time.Second).Format("20060102150405")
	case n.Start > 0:
		return fmt.Sprintf("%0*d", digits, n.Start+i)
	}
	return fmt.Sprintf("%0*d", digits, v.Number)
}

// Files renders every version above from for another migration tool. The files write Pawl's own
// version record, so [Check] works with any tool and any file numbers.
//
// Errors: [pawl.ErrArgumentInvalid] for an unknown format, and for numbers that the format does not
// support.
func Files(format Format, from int, numbers Numbering) ([]File, error) {
	if err := numbers.check(format); err != nil {
		return nil, &pawl.Error{Op: "migrate.print", Code: pawl.CodeArgumentInvalid, Err: err}
	}
	var render func(number func(digits int) string, v schema.Version) []File
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
	for i, v := range versionsAfter(from) {
		files = append(files, render(func(digits int) string { return numbers.of(i, v, digits) }, v)...)
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

func goose(number func(int) string, v schema.Version) []File {
	text := "-- +goose Up\n-- +goose StatementBegin\n" + lockTimeout + v.Script() + "-- +goose StatementEnd\n\n" +
		"-- +goose Down\n-- +goose StatementBegin\n" + lockTimeout + v.DownScript() + "-- +goose StatementEnd\n"
	return []File{{fmt.Sprintf("%s_pawl_%s.sql", number(5), v.Name), text}}
}

func tern(number func(int) string, v schema.Version) []File {
	text := lockTimeout + v.Script() + "\n---- create above / drop below ----\n\n" + lockTimeout + v.DownScript()
	return []File{{fmt.Sprintf("%s_pawl_%s.sql", number(3), v.Name), text}}
}

func golangMigrate(number func(int) string, v schema.Version) []File {
	base := fmt.Sprintf("%s_pawl_%s", number(6), v.Name)
	return []File{{base + ".up.sql", lockTimeout + v.Script()}, {base + ".down.sql", lockTimeout + v.DownScript()}}
}
