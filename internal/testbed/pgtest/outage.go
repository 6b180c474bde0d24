package pgtest

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Shut makes a database unreachable: it ends all sessions and refuses new ones. admin is connected
// to another database.
//
// The two statements are separate transactions. In one, clients would reconnect before the first
// takes effect.
//
// A session that is starting may have passed the connection check before it appears in
// pg_stat_activity. Renaming the database fails while there is one, so Shut renames it.
func Shut(ctx context.Context, admin *pgx.Conn, database string) error {
	name, away := pgx.Identifier{database}.Sanitize(), pgx.Identifier{database + "_away"}.Sanitize()
	if _, err := admin.Exec(ctx, "alter database "+name+" with allow_connections false"); err != nil {
		return err
	}
	for sessions := 1; sessions > 0; time.Sleep(2 * time.Millisecond) {
		err := admin.QueryRow(ctx, "select count(pg_terminate_backend(a.pid)) from pg_stat_activity as a where a.datname = $1",
			database).Scan(&sessions)
		if err != nil {
			return err
		}
		if sessions > 0 {
			continue
		}
		for _, renamed := range []string{name + " rename to " + away, away + " rename to " + name} {
			_, err := admin.Exec(ctx, "alter database "+renamed)
			// object_in_use.
			if used := new(pgconn.PgError); errors.As(err, &used) && used.Code == "55006" {
				sessions = 1
				break
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// Reopen ends the outage.
func Reopen(ctx context.Context, admin *pgx.Conn, database string) error {
	_, err := admin.Exec(ctx, "alter database "+pgx.Identifier{database}.Sanitize()+" with allow_connections true")
	return err
}
