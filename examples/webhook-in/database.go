package main

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/internal/testbed/postgres"
	"github.com/pawl-go/pawl/migrate"
)

// schema has no unique keys, so that a second effect shows.
const schema = `
create table if not exists push (ref text not null, commit text not null);
create table if not exists booking (invoice text not null, cents bigint not null)`

// prepare installs the tables that the server needs. Without a named database it starts one. In
// production the database exists, and `pawl migrate up` or your own tool installs the schema.
func prepare(ctx context.Context, named string) (database string, stop func(), err error) {
	stop = func() {}
	if database = named; database == "" {
		private, err := postgres.Start(ctx, postgres.Options{})
		if err != nil {
			return "", stop, err
		}
		database, stop = private.URL("postgres"), func() { _ = private.Stop() }
	}
	conn, err := pgx.Connect(ctx, database)
	if err == nil {
		defer conn.Close(ctx)
		if _, err = migrate.Up(ctx, conn, nil); err == nil {
			_, err = conn.Exec(ctx, schema)
		}
	}
	if err != nil {
		stop()
	}
	return database, stop, err
}
