package guard_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/guard"
	"github.com/pawl-go/pawl/pawltest"
)

// losesRaces makes the first three updates to status fail. Sequences do not roll back.
func losesRaces(status string) string {
	return `create sequence races;
create function lose() returns trigger language plpgsql as $$ begin
  if new.status = '` + status + `' and nextval('races') <= 3 then
    raise exception 'lost' using errcode = '40001';
  end if;
  return new;
end $$;
create trigger lose before update on orders for each row execute function lose()`
}

// At SERIALIZABLE each call of the package runs again after a lost race. The caller sees no 40001.
func TestRows_RestartAboveReadCommitted(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	nothing := func(context.Context, string) error { return nil }
	for name, c := range map[string]struct {
		status string // the status whose writes fail
		call   func(*guard.Rows, context.Context) error
		want   string
	}{
		"once": {"completed", func(r *guard.Rows, ctx context.Context) error { return r.Once(ctx, 1, ship(1)) }, "completed"},
		"once, failed": {"error", func(r *guard.Rows, ctx context.Context) error {
			err := r.Once(ctx, 1, func(context.Context, pgx.Tx) (any, error) { return nil, boom })
			if errors.Is(err, pawl.ErrFailureRecorded) {
				return nil
			}
			return err
		}, "error"},
		"claim": {"processing", func(r *guard.Rows, ctx context.Context) error { _, err := r.Claim(ctx, 1); return err }, "processing"},
		"commit": {"completed", func(r *guard.Rows, ctx context.Context) error {
			c, err := r.Claim(ctx, 1)
			if err != nil {
				return err
			}
			return c.Commit(ctx, ship(1))
		}, "completed"},
		"fail": {"error", func(r *guard.Rows, ctx context.Context) error {
			c, err := r.Claim(ctx, 1)
			if err != nil {
				return err
			}
			if err := c.Fail(ctx, boom); !errors.Is(err, pawl.ErrFailureRecorded) {
				return err
			}
			return nil
		}, "error"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// At READ COMMITTED, where a SELECT loses no race.
			asks := pawltest.DB(t, orders, losesRaces(c.status))
			config := asks.Config()
			config.ConnConfig.RuntimeParams["default_transaction_isolation"] = "serializable"
			pool, err := pgxpool.NewWithConfig(t.Context(), config)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(pool.Close)
			rows := rowsOf(t, pool, table)
			sweeper, err := rows.Sweeper(guard.SweeperConfig{}, nothing)
			if err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(t.Context())
			ran := make(chan struct{})
			go func() { sweeper.Run(ctx); close(ran) }()
			defer func() { stop(); <-ran }()
			err = c.call(rows, t.Context())
			for pawl.CodeOf(err) == pawl.CodeArgumentInvalid { // the sweeper has not started
				err = c.call(rows, t.Context())
			}
			if err != nil {
				t.Fatal(err)
			}
			wantText(t, asks, "select status from orders where id = 1", c.want)
		})
	}
}

// If drive panics, that row fails and the sweeper continues with the next.
func TestSweeper_APanicIsAFailure(t *testing.T) {
	t.Parallel()
	pool := pawltest.DB(t, orders, "update orders set created_at = now() - interval '1 hour'")
	told, calls := 0, 0
	sweeper, err := rowsOf(t, pool, table).Sweeper(guard.SweeperConfig{Hooks: pawl.Hooks{OnEvent: func(context.Context, pawl.Event) { told++ }}},
		func(context.Context, string) error { calls++; panic("drive") })
	if err != nil {
		t.Fatal(err)
	}
	if driven, err := sweeper.Pass(t.Context()); err != nil || driven != 0 || calls != 5 || told != 5 {
		t.Errorf("%d driven, %v; %d calls, %d events; want 0, 5 and 5", driven, err, calls, told)
	}
}
