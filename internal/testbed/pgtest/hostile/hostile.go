// Package hostile plants objects in schema public of a test database, as a role with CREATE there
// could do to run code as other roles. It plants an operator or a function for each of PostgreSQL's
// own, overloads for Pawl's types, and types with the names of PostgreSQL's.
//
// Each object leaves a trace and raises an error when used. Tests then show that neither the schema
// nor the tool uses a planted object.
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

// Mark is part of each error that a planted object raises.
const Mark = "hijacked:"

// Paths are search paths that find the planted objects: the default one, and one with public first.
var Paths = map[string]string{"public after pg_catalog": "public", "public before pg_catalog": "public, pg_catalog"}

// Plant creates copies of PostgreSQL's own objects with the same types. A path with public first
// finds them. It does not need Pawl's schema.
func Plant(ctx context.Context, conn *pgx.Conn) error {
	_, err := conn.Exec(ctx, plant)
	return err
}

// Overload creates operators and functions that fit Pawl's types better than PostgreSQL's own. Any
// path that contains public finds them. The database must have Pawl's schema.
func Overload(ctx context.Context, conn *pgx.Conn) error {
	_, err := conn.Exec(ctx, overload)
	return err
}

// Deny revokes EXECUTE on the planted functions from all but superusers. PostgreSQL then refuses a
// statement that names one (42501), even if no row makes it run.
func Deny(ctx context.Context, conn *pgx.Conn) error {
	_, err := conn.Exec(ctx, "revoke execute on all functions in schema public from public")
	return err
}

// Runs returns how often a planted object ran. It counts runs whose error was swallowed or whose
// transaction rolled back, but none of read-only transactions.
func Runs(ctx context.Context, conn *pgx.Conn) (n int, err error) {
	err = conn.QueryRow(ctx, `select case when s.is_called then s.last_value else 0 end from public.hijacks as s`).Scan(&n)
	return n, err
}

// Sum returns a hash of the scripts for the name of a template.
func Sum() string { return fmt.Sprintf("%x", sha256.Sum256([]byte(plant+overload)))[:8] }
