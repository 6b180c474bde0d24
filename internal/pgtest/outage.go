package pgtest

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// Shut makes a database unreachable, as an outage would: nobody can connect any more, and everybody is thrown out. admin
// is connected to another database. The two are transactions of their own: in one, clients would be back before the
// first takes effect.
func Shut(ctx context.Context, admin *pgx.Conn, database string) error {
	name := pgx.Identifier{database}.Sanitize()
	if _, err := admin.Exec(ctx, "alter database "+name+" with allow_connections false"); err != nil {
		return err
	}
	for sessions := 1; sessions > 0; time.Sleep(2 * time.Millisecond) {
		err := admin.QueryRow(ctx, "select count(pg_terminate_backend(a.pid)) from pg_stat_activity as a where a.datname = $1",
			database).Scan(&sessions)
		if err != nil {
			return err
		}
	}
	return nil
}

// Reopen ends the outage.
func Reopen(ctx context.Context, admin *pgx.Conn, database string) error {
	_, err := admin.Exec(ctx, "alter database "+pgx.Identifier{database}.Sanitize()+" with allow_connections true")
	return err
}
