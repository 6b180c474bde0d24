package guard_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/guard"
	"github.com/pawl-go/pawl/internal/testbed/pgtest"
	"github.com/pawl-go/pawl/pawltest"
)

// Losses are counted for the row, with ids of any Go type. Ids of different rows that Go prints
// alike do not share them.
func TestOnce_LossesAreOfTheRow(t *testing.T) {
	t.Parallel()
	pool := pawltest.DB(t, `create table orders (id text primary key, status text not null default 'pending', claimed_at timestamptz, completed_at timestamptz,
  last_error text, attempt_count int not null default 0);
insert into orders (id) values ('a'), ('[97]')`)
	admin, err := pgx.Connect(t.Context(), pgtest.ServerURL(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = admin.Close(context.Background()) })
	database := pool.Config().ConnConfig.Database
	rows := rowsOf(t, pool, guard.Table{Name: "orders"})
	lose := func(ctx context.Context, tx pgx.Tx) (any, error) {
		if err := pgtest.Shut(context.Background(), admin, database); err != nil {
			t.Error(err)
		}
		_, err := tx.Exec(ctx, "select 1")
		return nil, err
	}
	a := "a"
	// Go prints the first as an address, and the second as it prints the id of the other row.
	for _, id := range []any{&a, []byte("a"), "a"} {
		err := rows.Once(t.Context(), id, lose)
		if err == nil || errors.Is(err, pawl.ErrFailureRecorded) {
			t.Errorf("an outage: %v", err)
		}
		if err := pgtest.Reopen(t.Context(), admin, database); err != nil {
			t.Fatal(err)
		}
		until(t, "the database answers", func() bool { return pool.Ping(t.Context()) == nil })
	}
	called := 0
	work := func(context.Context, pgx.Tx) (any, error) { called++; return nil, nil }
	if err := rows.Once(t.Context(), "[97]", work); err != nil || called != 1 {
		t.Errorf("another row: %v, %d calls", err, called)
	}
	if err := rows.Once(t.Context(), "a", work); !errors.Is(err, pawl.ErrFailureRecorded) || called != 1 {
		t.Errorf("the row: %v, %d calls", err, called)
	}
	wantText(t, pool, "select string_agg(concat_ws(' ', id, status, attempt_count), ', ' order by id) from orders", "[97] completed 1, a error 1")
}
