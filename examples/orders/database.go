package main

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/internal/testbed/postgres"
	"github.com/pawl-go/pawl/migrate"
)

const schema = `
create table if not exists stock (item text primary key, left_over int not null);
create table if not exists orders (id bigint generated always as identity primary key, item text not null, count int not null);
insert into stock values ('shoes', 1000000) on conflict do nothing`

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
