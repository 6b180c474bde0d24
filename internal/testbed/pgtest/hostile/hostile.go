// Package hostile plants, in schema public of a test database, what a role that may create there could plant to run code as others: an
// operator or a function for each of PostgreSQL's own, overloads for the types of Pawl, and types under the names of PostgreSQL's. Each
// leaves a trace and raises when it is used. Tests of the schema and of the tool then show that nothing of Pawl reaches them.
package hostile

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"fmt"

	"github.com/jackc/pgx/v5"
)

var (
	//go:embed plant.sql
	plant string
	//go:embed overload.sql
	overload string
)

// Mark is in the message of each error that a planted object raises.
const Mark = "hijacked:"

// Paths are search paths under which the planted objects are found: the usual one, and one that looks at public first.
var Paths = map[string]string{"public after pg_catalog": "public", "public before pg_catalog": "public, pg_catalog"}

// Plant creates what needs nothing of Pawl's: copies of PostgreSQL's own under the same types, which a path finds that has public first.
func Plant(ctx context.Context, conn *pgx.Conn) error {
	_, err := conn.Exec(ctx, plant)
	return err
}

// Overload creates, in a database with Pawl's schema, operators and functions that fit the types of Pawl better than PostgreSQL's own
// do: any path finds them that has public in it.
func Overload(ctx context.Context, conn *pgx.Conn) error {
	_, err := conn.Exec(ctx, overload)
	return err
}

// Deny lets no role but superusers run what is planted. PostgreSQL then refuses a statement that names it (42501) also where no row
// makes it run.
func Deny(ctx context.Context, conn *pgx.Conn) error {
	_, err := conn.Exec(ctx, "revoke execute on all functions in schema public from public")
	return err
}

// Runs is how many times a planted object ran, also where its error was swallowed or its transaction rolled back, unless that was read-only.
func Runs(ctx context.Context, conn *pgx.Conn) (n int, err error) {
	err = conn.QueryRow(ctx, `select case when s.is_called then s.last_value else 0 end from public.hijacks as s`).Scan(&n)
	return n, err
}

// Sum names the scripts by what they hold, for the name of a template.
func Sum() string { return fmt.Sprintf("%x", sha256.Sum256([]byte(plant+overload)))[:8] }
