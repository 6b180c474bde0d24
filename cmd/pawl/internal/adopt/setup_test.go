package adopt

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/pawltest"
)

const example = `
create table processed_messages (
  message_id   text primary key,
  body         bytea, -- yours may not have it: see step 2
  processed_at timestamptz not null default clock_timestamp()
);`

// A bed is a database with a table to adopt.
type bed struct {
	*testing.T
	*pgx.Conn
}

func setup(t *testing.T, schema string) *bed {
	t.Helper()
	b := &bed{T: t}
	b.Conn = b.connect(pawltest.URL(t))
	b.exec(schema)
	return b
}

func (b *bed) connect(url string) *pgx.Conn {
	b.Helper()
	conn, err := pgx.Connect(b.Context(), url)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func (b *bed) exec(sql string) {
	b.Helper()
	if _, err := b.Conn.Exec(b.Context(), sql, pgx.QueryExecModeSimpleProtocol); err != nil {
		b.Fatalf("%s: %v", sql, err)
	}
}

func (b *bed) want(want int64, query string, args ...any) {
	b.Helper()
	var got int64
	if err := b.QueryRow(b.Context(), query, args...).Scan(&got); err != nil || got != want {
		b.Errorf("%s: %d, want %d (%v)", query, got, want, err)
	}
}

func (b *bed) find(c Choice) *Table {
	b.Helper()
	t, err := Find(b.Context(), b.Conn, c)
	if err != nil {
		b.Fatalf("%+v: %v", c, err)
	}
	return t
}

func (b *bed) run(t *Table, step string) Result {
	b.Helper()
	r, err := t.Run(b.Context(), b.Conn, step, func(Result) {})
	if err != nil {
		b.Fatalf("%s: %v", step, err)
	}
	return r
}

// wantRefusal checks an error and its next step.
func (b *bed) wantRefusal(err error, why, next string) {
	b.Helper()
	var r *Refusal
	if !errors.As(err, &r) || !strings.Contains(r.Why, why) || !strings.Contains(r.Next, next) {
		b.Errorf("%v, want a refusal with %q and the next step %q: %+v", err, why, next, r)
	}
}

// rehearse plays all steps with a planted fault, or none.
func (b *bed) rehearse(t *Table, fault string) Proof {
	b.Helper()
	p, err := (&rehearsal{real: t, conn: b.Conn, seed: 7, say: func(string) {}, fault: fault}).run(b.Context())
	if err != nil {
		b.Fatalf("%s: %v", fault, err)
	}
	b.want(0, "select count(*) from pg_namespace where nspname = $1", stage)
	b.want(0, "select count(*) from pawl.inbox where consumer = $1", stage)
	return p
}
