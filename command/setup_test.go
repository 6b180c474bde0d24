package command_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/command"
	"github.com/pawl-go/pawl/internal/testbed/patience"
	"github.com/pawl-go/pawl/pawltest"
)

// orders has no unique key, so that a second effect shows.
const orders = "create table orders (id bigint generated always as identity, body text not null)"

// A bed is one database whose events are counted.
type bed struct {
	*testing.T
	pool     *pgxpool.Pool
	url      string
	counters *pawl.Counters
}

func setup(t *testing.T, schema ...string) *bed {
	t.Helper()
	return setupOn(t, pawltest.URL(t, append([]string{orders}, schema...)...))
}

func setupOn(t *testing.T, url string) *bed {
	t.Helper()
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = 10
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return &bed{T: t, pool: pool, url: url, counters: &pawl.Counters{}}
}

func (b *bed) hooks() pawl.Hooks {
	return pawl.Join(b.counters.Hooks(), pawl.Hooks{OnEvent: func(_ context.Context, e pawl.Event) {
		if e.Err != nil {
			b.Logf("%s %s %s: %v", e.Kind, e.Op, e.Key, e.Err)
		}
	}})
}

func (b *bed) options() command.Options { return command.Options{Hooks: b.hooks()} }

func intent(key, payload string) pawl.Intent {
	return pawl.Intent{Scope: "orders", Key: key, Fingerprint: pawl.FingerprintOf([]byte(payload))}
}

// An order is the row that handlers create.
type order struct {
	ID   int64  `json:"id"`
	Body string `json:"body"`
}

func (o order) ResultRef() (string, string) { return "order", o.Body }

func place(body string) func(context.Context, pgx.Tx) (order, error) {
	return func(ctx context.Context, tx pgx.Tx) (o order, err error) {
		o.Body = body
		err = tx.QueryRow(ctx, "insert into orders (body) values ($1) returning id", body).Scan(&o.ID)
		return o, err
	}
}

func placeSQL(body string) func(context.Context, *sql.Tx) (order, error) {
	return func(ctx context.Context, tx *sql.Tx) (o order, err error) {
		o.Body = body
		err = tx.QueryRowContext(ctx, "insert into orders (body) values ($1) returning id", body).Scan(&o.ID)
		return o, err
	}
}

func fails(cause error) func(context.Context, pgx.Tx) (order, error) {
	return func(ctx context.Context, tx pgx.Tx) (order, error) {
		if _, err := place("failed")(ctx, tx); err != nil {
			return order{}, err
		}
		return order{}, cause
	}
}

func (b *bed) once(key, payload string, fn func(context.Context, pgx.Tx) (order, error)) (command.Result[order], error) {
	b.Helper()
	return command.Once(b.Context(), b.pool, intent(key, payload), b.options(), fn)
}

func (b *bed) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

func (b *bed) exec(statement string) {
	b.Helper()
	_, err := b.pool.Exec(b.Context(), statement)
	b.must(err)
}

func (b *bed) want(query string, want int) {
	b.Helper()
	var got int
	b.must(b.pool.QueryRow(b.Context(), query).Scan(&got))
	if got != want {
		b.Errorf("%s: %d, want %d", query, got, want)
	}
}

func (b *bed) wantOrders(want int) { b.Helper(); b.want("select count(*) from orders", want) }

func (b *bed) wantStatus(want string) {
	b.Helper()
	var got string
	b.must(b.pool.QueryRow(b.Context(), "select coalesce(string_agg(c.status || ' ' || c.attempts, ', ' order by c.key), '') from pawl.command as c").Scan(&got))
	if got != want {
		b.Errorf("the ledger holds %q, want %q", got, want)
	}
}

func (b *bed) wantError(err, want error) {
	b.Helper()
	if !errors.Is(err, want) {
		b.Errorf("got %v, want %v", err, want)
	}
}

// until polls until the query returns want.
func (b *bed) until(query string, want int) {
	b.Helper()
	patience.Until(b, fmt.Sprintf("%d by %s", want, query), func() bool {
		var got int
		b.must(b.pool.QueryRow(b.Context(), query).Scan(&got))
		return got == want
	})
}

// expire moves the ends of all leases into the past.
const expire = "update pawl.command set lease_expires_at = now() - interval '1 minute' where lease_expires_at is not null"
