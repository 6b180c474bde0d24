package outagetest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/consumer"
	"github.com/pawl-go/pawl/internal/testbed/patience"
	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/pawltest"
)

// A situation is an error that a handler meets at each attempt. The job ends as a dead letter with
// a code, after one or both of two attempts.
type situation struct {
	do       string // its statements
	own      func(ctx context.Context, tx pgx.Tx) error
	attempts int
	code     string
}

var situations = map[string]situation{
	"statement_timeout": {do: "set local statement_timeout = '10ms'; select pg_sleep(60)", attempts: 2, code: "57014"},
	"a cancel of its own": {own: func(ctx context.Context, tx pgx.Tx) error {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
		defer cancel()
		_, err := tx.Exec(ctx, "select pg_sleep(60)")
		return err
	}, attempts: 2},
	"an operator's cancel":     {do: "select pg_cancel_backend(pg_backend_pid()); select pg_sleep(60)", attempts: 2, code: "57014"},
	"a lock on its own table":  {do: "set local lock_timeout = '10ms'; insert into locked values (1)", attempts: 2, code: "55P03"},
	"its own unique key":       {do: "insert into once values (1)", attempts: 2, code: "23505"},
	"a unique key of Pawl":     {do: "insert into pawl.migration select * from pawl.migration", attempts: 2, code: "23505"},
	"a CHECK":                  {do: "insert into positive values (-1)", attempts: 1, code: "23514"},
	"bad data":                 {do: "select 'x'::int", attempts: 1, code: "22P02"},
	"a schema that is missing": {do: "select * from nowhere.t", attempts: 2, code: "42P01"},
	"a right that is missing":  {do: "set local role passer_by; select * from positive", attempts: 2, code: "42501"},
	"row level security":       {do: "set local role passer_by; insert into guarded values (1)", attempts: 2, code: "42501"},
	"not supported":            {do: "select n from positive group by n for update", attempts: 2, code: "0A000"},
	"a race that never ends":   {do: "do $$ begin raise exception 'race' using errcode = '40001'; end $$", attempts: 2, code: "40001"},
	"pg_terminate_backend":     {do: "select pg_terminate_backend(pg_backend_pid()); select pg_sleep(60)", attempts: 2, code: "P4032"},
	"read-only":                {do: "set local transaction_read_only = on; insert into once values (2)", attempts: 2, code: "P4032"},
	"a transaction that it broke": {own: func(ctx context.Context, tx pgx.Tx) error {
		_, _ = tx.Exec(ctx, "select 1 / 0")
		return nil
	}, attempts: 2, code: "25P02"},
}

const situated = `create table once (n int primary key); insert into once values (1);
create table locked (n int);
create table positive (n int check (n > 0));
create role passer_by;
create table guarded (n int); alter table guarded enable row level security; grant insert on guarded to passer_by`

func (s situation) meet(ctx context.Context, tx pgx.Tx) error {
	if s.own != nil {
		return s.own(ctx, tx)
	}
	// One by one, so that later statements see the settings of earlier ones.
	for _, statement := range split(s.do) {
		if _, err := tx.Exec(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

func split(script string) (all []string) {
	quoted, from := false, 0
	for i := range script {
		switch {
		case script[i] == '$':
			quoted = !quoted
		case script[i] == ';' && !quoted && (i == 0 || script[:2] != "do"):
			all, from = append(all, script[from:i]), i+1
		}
	}
	return append(all, script[from:])
}

// An error that a handler meets while the database serves others is charged to it, in jobs and in
// deliveries. It never counts as an outage, so other work continues.
func TestSituations_AreCharged(t *testing.T) {
	t.Parallel()
	b := setup(t, map[string]string{"max_connections": "60"}, situated)
	holder, err := pgx.Connect(t.Context(), b.server.URL("postgres"))
	b.must(err)
	t.Cleanup(func() { _ = holder.Close(context.Background()) })
	for _, statement := range []string{"begin", "lock table locked in share mode"} {
		_, err := holder.Exec(t.Context(), statement)
		b.must(err)
	}
	pool := b.pool(20, nil)
	s := &pawltest.Source{}
	c, err := consumer.New(pool, consumer.Config{Name: "c", Source: s, Hooks: quiet, Concurrency: 4, Handler: consumer.HandleTx(func(ctx context.Context, tx pgx.Tx, m consumer.Message[[]byte]) error {
		return situations[m.Key].meet(ctx, tx)
	}).With(consumer.TxPolicy{Policy: consumer.Policy{MaxAttempts: 2, Backoff: fast}})})
	b.must(err)
	b.starts(c)
	b.worker(b.pool(8, nil), quiet, job.Queue{Name: "q", Concurrency: 4}, job.HandleTx("k", func(ctx context.Context, tx pgx.Tx, t job.Task[[]byte]) error {
		return situations[string(t.Payload)].meet(ctx, tx)
	}))
	for name := range situations {
		s.Send(pawl.Delivery{Key: name, Payload: []byte(name)})
		b.exec(`select pawl_v1.job_enqueue('q', 'k', $1, '{"max_attempts": 2}')`, []byte(name))
	}
	t.Cleanup(func() {
		if t.Failed() {
			rows, _ := b.admin.Query(context.Background(), "select convert_from(j.payload, 'UTF8') || ' ' || j.queue || ' ' || j.status || ' ' || j.attempts || ' ' || j.crashes || ' ' || coalesce(j.last_errors::text, '') from pawl.job as j")
			all, _ := pgx.CollectRows(rows, pgx.RowTo[string])
			for _, one := range all {
				t.Log(one)
			}
		}
	})
	patience.Until(t, "all have ended as dead letters", func() bool {
		return b.count("select count(*) from pawl.job as j where j.status = 'dead_letter'") >= 2*len(situations)
	})
	patience.Until(t, "all is acknowledged", func() bool { return s.Open() == 0 })
	rows, err := b.admin.Query(t.Context(), "select convert_from(j.payload, 'UTF8'), j.queue, j.attempts, coalesce(j.last_errors -> -1 ->> 'code', '') from pawl.job as j order by 1, 2")
	b.must(err)
	var name, queue, code string
	var attempts int
	_, err = pgx.ForEachRow(rows, []any{&name, &queue, &attempts, &code}, func() error {
		if want := situations[name]; attempts != want.attempts || code != want.code {
			t.Errorf("%s in %s: %d attempts, %s; want %d, %s", name, queue, attempts, code, want.attempts, want.code)
		}
		return nil
	})
	b.must(err)
}

// If Pawl's own statements meet one of these errors, it is an outage. Nothing is charged, and all
// work is done afterwards.
func TestSituations_AreOutages(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ make, cure string }{
		"a right that is missing": {"revoke execute on function pawl_v1.inbox_claim(text, text, bytea, jsonb) from app, public", "grant execute on function pawl_v1.inbox_claim(text, text, bytea, jsonb) to app"},
		"row level security":      {"alter table pawl.inbox enable row level security", "alter table pawl.inbox disable row level security"},
		"too many connections":    {"alter role app connection limit 0", "alter role app connection limit -1"},
		"not supported":           {"create function refuse() returns trigger language plpgsql as $$ begin raise feature_not_supported; end $$; create trigger refuse before insert on pawl.inbox execute function refuse()", "drop trigger refuse on pawl.inbox"},
		"statement_timeout":       {"create function slow() returns trigger language plpgsql as $$ begin set local statement_timeout = '1ms'; raise query_canceled; end $$; create trigger slow before insert on pawl.inbox execute function slow()", "drop trigger slow on pawl.inbox"},
		"a full lock table":       {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, map[string]string{"max_locks_per_transaction": "10", "max_connections": "30"}, `create role app login; grant usage on schema pawl, pawl_v1 to app; grant all on all tables in schema pawl, pawl_v1, public to app;
grant all on all sequences in schema pawl to app; grant execute on all functions in schema pawl_v1 to app`)
			var counters pawl.Counters
			s := &pawltest.Source{}
			c2, err := consumer.New(b.poolOf("app", 12), consumer.Config{Name: "c", Source: s, Hooks: counters.Hooks(), Handler: consumer.HandleTx(func(ctx context.Context, tx pgx.Tx, m consumer.Message[[]byte]) error {
				return apply(ctx, tx, m.Key)
			}).With(consumer.TxPolicy{Policy: consumer.Policy{MaxAttempts: 1}})})
			b.must(err)
			b.starts(c2)
			s.Send(pawl.Delivery{Key: "before", Payload: []byte("x")})
			patience.Until(t, "it works before", func() bool { return s.Open() == 0 })
			free := func() {}
			if c.make == "" {
				free = b.fillLocks()
			} else {
				b.exec(c.make)
			}
			if name == "too many connections" {
				b.exec("select pg_terminate_backend(a.pid) from pg_stat_activity as a where a.usename = 'app'")
			}
			const messages = 5
			for n := range messages {
				s.Send(pawl.Delivery{Key: fmt.Sprint(n), Payload: []byte("x")})
			}
			patience.Until(t, "the outage is noticed", func() bool { return counters.Count(pawl.EventError) > 0 })
			patience.Watch(2*time.Second, func() {})
			if c.cure == "" {
				free()
			} else {
				b.exec(c.cure)
			}
			patience.Until(t, "all is acknowledged", func() bool { return s.Open() == 0 })
			b.until("all have ended: charged once, a delivery would stay as a dead letter", "select count(*) from pawl.job", 0)
			b.wantEffects(messages + 1)
		})
	}
}

// fillLocks takes locks until the lock table is full. free releases them.
func (b *bed) fillLocks() (free func()) {
	b.Helper()
	conn, err := pgx.Connect(b.Context(), b.server.URL("postgres"))
	b.must(err)
	b.Cleanup(func() { _ = conn.Close(context.Background()) })
	do := func(statement string, args ...any) error {
		_, err := conn.Exec(b.Context(), statement, args...)
		return err
	}
	b.must(do("begin"))
	for from, step := 0, 256; step > 0; {
		b.must(do("savepoint s"))
		if err := do("select count(pg_advisory_xact_lock(77, n)) from generate_series($1::int, $2::int) as n", from, from+step-1); err != nil {
			if pawl.CodeOf(err) != "53200" {
				b.Fatal(err)
			}
			b.must(do("rollback to savepoint s"))
			step /= 2
			continue
		}
		from += step
	}
	return func() { b.must(do("rollback")) }
}
