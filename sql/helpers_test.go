package sql_test

import (
	"context"
	"errors"
	"os"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pawl-go/pawl/internal/pgtest/catalogue"
)

// schemaOf returns the catalogue of a database that holds Pawl's schema.
func schemaOf(t *testing.T, url string) []string {
	t.Helper()
	lines, err := catalogue.Read(t.Context(), connect(t, url))
	if err != nil {
		t.Fatal(err)
	}
	return lines
}

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
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
