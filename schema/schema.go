// Package schema is the contract: the tables and functions that clients in every language use.
//
// tables/ holds numbered, append-only migrations. api/ holds the functions, which every version
// replaces completely. Version N is the tables up to N and the functions at that time. A released
// version never changes: see docs/decisions/0002-contract-versions.md. dist/pawl.sql is the newest
// version as one script for psql.
package schema

import (
	"embed"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"
	"sync"

	"github.com/pawl-go/pawl/internal/script"
)

//go:generate go run ./internal/gen/dist
//go:generate go run ./internal/gen/reference

//go:embed tables/*.sql api/*.sql roles.sql
var files embed.FS

// minClient is the oldest client version that understands the newest schema. Raise it only when old
// workers must stop.
const minClient = 1

// A Version is one migration of the tables, up and down.
type Version struct {
	Number   int
	Name     string // "init"
	Up, Down string // SQL text
}

// Versions returns every version, oldest first.
func Versions() []Version {
	ups, err := fs.Glob(files, "tables/*.up.sql")
	if err != nil {
		panic(err) // a malformed pattern, which any test finds
	}
	versions := make([]Version, 0, len(ups))
	for _, up := range ups {
		base := strings.TrimSuffix(path.Base(up), ".up.sql")
		number, name, _ := strings.Cut(base, "_")
		n, err := strconv.Atoi(number)
		if err != nil {
			panic(fmt.Sprintf("schema/%s: the name must start with a number", up))
		}
		versions = append(versions, Version{n, name, read(up), read("tables/" + base + ".down.sql")})
	}
	return versions
}

// Newest returns the number of the newest version.
func Newest() int {
	all := Versions()
	return all[len(all)-1].Number
}

// API returns the functions and views in creation order.
func API() string { return api() }

var api = sync.OnceValue(func() string {
	names, err := fs.Glob(files, "api/*.sql")
	if err != nil {
		panic(err)
	}
	var all strings.Builder
	for _, name := range names {
		all.WriteString(read(name))
		all.WriteByte('\n')
	}
	return all.String()
})

var apiHash = sync.OnceValue(func() string { return script.Hash(API()) })

// Roles returns the script that creates pawl_app, pawl_operator and pawl_reader and grants their
// privileges.
func Roles() string { return script.Pinned(read("roles.sql")) }

// Script returns the statements that migrate a database from the version before v to v, including
// the row in pawl.migration. The newest version also installs the functions.
func (v Version) Script() string {
	var s strings.Builder
	s.WriteString(v.Up)
	s.WriteByte('\n')
	if v.Number == Newest() {
		s.WriteString(API())
	}
	fmt.Fprintf(&s, "insert into pawl.migration (version, name, min_client, api_hash)\nvalues (%d, '%s', %d, '%s');\n",
		v.Number, v.Name, minClient, apiHash())
	return script.Pinned(s.String())
}

// DownScript returns the statements that revert version v, including its row in pawl.migration.
// Version 1 drops that table. The functions of version v stay, and api_hash records that. The build
// of the earlier version then reinstalls its own.
func (v Version) DownScript() string {
	if v.Number == 1 {
		return script.Pinned(v.Down)
	}
	return script.Pinned(v.Down + fmt.Sprintf("\ndelete from pawl.migration as m where m.version = %d;\n"+
		"update pawl.migration as m set api_hash = 'of version %d' where m.version = %d;\n", v.Number, v.Number, v.Number-1))
}

func read(name string) string {
	text, err := files.ReadFile(name)
	if err != nil {
		panic(err) // embedded at build time
	}
	return string(text)
}
