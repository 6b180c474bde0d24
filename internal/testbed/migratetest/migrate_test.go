package migratetest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	gomigrate "github.com/golang-migrate/migrate/v4"
	gomigratepgx "github.com/golang-migrate/migrate/v4/database/pgx/v5"
	"github.com/golang-migrate/migrate/v4/source/iofs"
	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib"
	ternmigrate "github.com/jackc/tern/v2/migrate"
	"github.com/pressly/goose/v3"

	"github.com/pawl-go/pawl/internal/testbed/patience"
	"github.com/pawl-go/pawl/internal/testbed/pgtest"
	"github.com/pawl-go/pawl/internal/testbed/pgtest/catalogue"
	"github.com/pawl-go/pawl/migrate"
	"github.com/pawl-go/pawl/pawltest"
)

// A tool applies a directory of migrations to a database and reverts all of them.
type tool struct {
	up, down func(ctx context.Context) error
}

// tools opens each tool as its documentation says.
var tools = map[migrate.Format]func(t *testing.T, url string, files fs.FS) tool{
	migrate.Goose:         openGoose,
	migrate.Tern:          openTern,
	migrate.GolangMigrate: openGolangMigrate,
}

func openGoose(t *testing.T, url string, files fs.FS) tool {
	t.Helper()
	provider, err := goose.NewProvider(goose.DialectPostgres, openSQL(t, url), files)
	must(t, err)
	return tool{
		up:   func(ctx context.Context) error { _, err := provider.Up(ctx); return err },
		down: func(ctx context.Context) error { _, err := provider.DownTo(ctx, 0); return err },
	}
}

func openTern(t *testing.T, url string, files fs.FS) tool {
	t.Helper()
	migrator, err := ternmigrate.NewMigrator(t.Context(), connect(t, url), "public.schema_version")
	must(t, err)
	must(t, migrator.LoadMigrations(files))
	return tool{
		up:   migrator.Migrate,
		down: func(ctx context.Context) error { return migrator.MigrateTo(ctx, 0) },
	}
}

func openGolangMigrate(t *testing.T, url string, files fs.FS) tool {
	t.Helper()
	source, err := iofs.New(files, ".")
	must(t, err)
	driver, err := gomigratepgx.WithInstance(openSQL(t, url), &gomigratepgx.Config{})
	must(t, err)
	m, err := gomigrate.NewWithInstance("iofs", source, "pgx5", driver)
	must(t, err)
	t.Cleanup(func() {
		sourceErr, databaseErr := m.Close()
		must(t, errors.Join(sourceErr, databaseErr))
	})
	return tool{
		up:   func(context.Context) error { return m.Up() },
		down: func(context.Context) error { return m.Down() },
	}
}

// Each tool creates the same schema. Check accepts it, the catalogue is identical, and the tool can
// revert and apply it again.
func TestPrintedFiles_WorkWithTheRealTool(t *testing.T) {
	t.Parallel()
	want := schemaOf(t, pawltest.URL(t))
	for _, format := range migrate.Formats() {
		if format == migrate.Plain {
			continue // for psql: TestDist_EqualsMigrations applies it
		}
		t.Run(string(format), func(t *testing.T) {
			t.Parallel()
			url := pgtest.URL(t, pgtest.Template{Name: "empty"})
			tool := tools[format](t, url, printed(t, format))
			for range 2 {
				must(t, tool.up(t.Context()))
				must(t, migrate.Check(t.Context(), connect(t, url)))
				if differ := catalogue.Difference(want, schemaOf(t, url)); len(differ) > 0 {
					t.Fatalf("the schema differs from migrate.Up's:\n%s", strings.Join(differ, "\n"))
				}
				must(t, tool.down(t.Context()))
				if left := schemas(t, url); left != 0 {
					t.Fatalf("%d schemas of Pawl's are left after down", left)
				}
			}
		})
	}
}

// Printed files that are numbered after the user's own migrations are applied together with them,
// by one tool with one directory and one version table.
func TestPrintedFiles_AmongOthers(t *testing.T) {
	t.Parallel()
	want := schemaOf(t, pawltest.URL(t))
	own := map[migrate.Format][]string{migrate.Goose: {"00001_own.sql", "00002_own.sql"}, migrate.Tern: {"001_own.sql", "002_own.sql"},
		migrate.GolangMigrate: {"000001_own.up.sql", "000002_own.up.sql"}}
	for format, names := range own {
		numberings := map[string]migrate.Numbering{"start": {Start: 3}}
		if format != migrate.Tern {
			numberings["timestamps"] = migrate.Numbering{At: time.Now()}
		}
		for how, numbers := range numberings {
			t.Run(string(format)+" "+how, func(t *testing.T) {
				t.Parallel()
				files, err := migrate.Files(format, 0, numbers)
				must(t, err)
				dir := fstest.MapFS{}
				for _, file := range files {
					dir[file.Name] = &fstest.MapFile{Data: []byte(file.Text)}
				}
				for i, name := range names {
					text := fmt.Sprintf("create table public.own_%d (id int);\n", i)
					if format == migrate.Goose {
						text = "-- +goose Up\n" + text
					}
					dir[name] = &fstest.MapFile{Data: []byte(text)}
				}
				url := pgtest.URL(t, pgtest.Template{Name: "empty"})
				must(t, tools[format](t, url, dir).up(t.Context()))
				must(t, migrate.Check(t.Context(), connect(t, url)))
				if differ := catalogue.Difference(want, schemaOf(t, url)); len(differ) > 0 {
					t.Errorf("the schema differs from migrate.Up's:\n%s", strings.Join(differ, "\n"))
				}
				var tables int
				must(t, connect(t, url).QueryRow(t.Context(), "select count(*) from pg_class where relname in ('own_0', 'own_1')").Scan(&tables))
				if tables != 2 {
					t.Errorf("%d tables of the user's own", tables)
				}
			})
		}
	}
}

// Every tool uses our lock_timeout. A migration that queues behind a long transaction therefore
// does not block the workers that queue behind it (trap T29).
func TestT29_PrintedFilesDoNotWaitForLocks(t *testing.T) {
	t.Parallel()
	for format, open := range tools {
		t.Run(string(format), func(t *testing.T) {
			t.Parallel()
			url := pgtest.URL(t, pgtest.Template{Name: "empty"})
			tool := open(t, url, printed(t, format))
			must(t, tool.up(t.Context()))
			blocker := connect(t, url)
			_, err := blocker.Exec(t.Context(), "begin; lock table pawl.job in access share mode")
			must(t, err)
			result := make(chan error, 1)
			go func() { result <- tool.down(t.Context()) }()
			if err := patience.Receive(t, "down gives up the wait for its lock", result); err == nil || !strings.Contains(err.Error(), "lock timeout") {
				t.Errorf("got %v, want a lock timeout", err)
			}
			if left := schemas(t, url); left != 2 {
				t.Errorf("%d schemas after the failed down, want both", left)
			}
		})
	}
}

// printed returns a directory with the files of `pawl migrate print`.
func printed(t *testing.T, format migrate.Format) fs.FS {
	t.Helper()
	files, err := migrate.Files(format, 0, migrate.Numbering{})
	must(t, err)
	dir := fstest.MapFS{}
	for _, file := range files {
		dir[file.Name] = &fstest.MapFile{Data: []byte(file.Text)}
	}
	return dir
}

func schemaOf(t *testing.T, url string) []string {
	t.Helper()
	lines, err := catalogue.Read(t.Context(), connect(t, url))
	must(t, err)
	return lines
}

func schemas(t *testing.T, url string) (n int) {
	t.Helper()
	must(t, connect(t, url).QueryRow(t.Context(), "select count(*) from pg_namespace as n where n.nspname in ('pawl', 'pawl_v1')").Scan(&n))
	return n
}

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	must(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func openSQL(t *testing.T, url string) *sql.DB {
	t.Helper()
	db, err := sql.Open("pgx", url)
	must(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
