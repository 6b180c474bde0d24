package schematest_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pawl-go/pawl/internal/testbed/pgtest"
	"github.com/pawl-go/pawl/internal/testbed/pgtest/catalogue"
	"github.com/pawl-go/pawl/migrate"
)

// schemaOf returns the catalogue of a database with Pawl's schema.
func schemaOf(t *testing.T, url string) []string {
	t.Helper()
	lines, err := catalogue.Read(t.Context(), connect(t, url))
	if err != nil {
		t.Fatal(err)
	}
	return lines
}

func connect(tb testing.TB, url string) *pgx.Conn {
	tb.Helper()
	conn, err := pgx.Connect(tb.Context(), url)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func exec1(t *testing.T, url, script string) {
	t.Helper()
	if _, err := connect(t, url).Exec(t.Context(), script); err != nil {
		t.Fatal(err)
	}
}

func asPgError(err error, target **pgconn.PgError) bool { return errors.As(err, target) }

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	if err := os.WriteFile(to, []byte(read(t, from)), 0o644); err != nil {
		t.Fatal(err)
	}
}

// linguistic returns the URL of a database with Pawl's schema and a linguistic collation.
func linguistic(t *testing.T) string {
	t.Helper()
	server := pgtest.ServerURL(t)
	admin := connect(t, server)
	var version int
	var locale string
	err := admin.QueryRow(t.Context(), `select current_setting('server_version_num')::int,
       coalesce((select min(c.collcollate) from pg_collation as c where c.collprovider = 'c' and c.collcollate ilike 'en_us.utf%8'), '')`).
		Scan(&version, &locale)
	if err != nil {
		t.Fatal(err)
	}
	how := "locale_provider icu icu_locale 'und' locale 'C'"
	if version < 150000 { // ICU as a database's locale provider exists from 15 on
		if locale == "" {
			t.Fatal("this server has no locale en_US.UTF-8: generate it on its machine (locale-gen en_US.UTF-8)")
		}
		how = "locale '" + locale + "'"
	}
	name := fmt.Sprintf("pawl_test_linguistic_%x", rand.Uint64())
	if _, err := admin.Exec(t.Context(), "create database "+name+" template template0 encoding 'UTF8' "+how); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		admin, err := pgx.Connect(context.Background(), server)
		if err != nil {
			return
		}
		defer admin.Close(context.Background())
		_, _ = admin.Exec(context.Background(), "drop database "+name+" with (force)")
	})
	u, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	u.Path = "/" + name
	if _, err := migrate.Up(t.Context(), connect(t, u.String()), nil); err != nil {
		t.Fatal(err)
	}
	return u.String()
}
