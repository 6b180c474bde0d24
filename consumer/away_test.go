package consumer_test

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/guard"
	"github.com/pawl-go/pawl/internal/testbed/patience"
)

// Connections made during an outage are not used afterwards, because they may be read-only.
func TestConsumer_DropsTheConnectionsOfAnOutage(t *testing.T) {
	t.Parallel()
	b := setup(t, `create sequence refused;
create function no_room() returns trigger language plpgsql as $$ begin perform nextval('public.refused'); raise exception 'no room' using errcode = '53100'; end $$;
create trigger no_room before insert on pawl.inbox execute function no_room();`)
	b.start()
	b.source.Send(pawl.Delivery{Key: "k", Payload: []byte("x")})
	// The delivery may be refused twice, because one Receive is under way when the outage is
	// noticed. From then on probes are refused.
	b.until("probes are refused", func() bool { return b.count("select last_value from refused") >= 4 })
	pooled, err := b.pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	session := fmt.Sprintf("select count(*) from pg_stat_activity where pid = %d", pooled.Conn().PgConn().PID())
	if _, err := b.asks.Exec(t.Context(), "drop trigger no_room on pawl.inbox"); err != nil {
		t.Fatal(err)
	}
	b.until("all is acknowledged", func() bool { return b.source.Open() == 0 })
	pooled.Release()
	b.until("its session has ended", func() bool { return b.count(session) == 0 })
}

// outage is how long the database takes no claims.
const outage = 4 * time.Second

// While the database cannot take a claim, for any reason, the consumer stops receiving. The broker
// counts receives and would dead-letter good messages. Receiving resumes soon after.
func TestConsumer_StopsReceivingWhileNoClaimSucceeds(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ broken, mended string }{
		"read-only":      {"alter database %s set default_transaction_read_only = on", "alter database %s reset default_transaction_read_only"},
		"missing table":  {"alter table pawl.inbox rename to away", "alter table pawl.away rename to inbox"},
		"missing schema": {"alter schema pawl_v1 rename to away", "alter schema away rename to pawl_v1"},
		"disk full":      {"create function no_room() returns trigger language plpgsql as $$ begin raise exception 'no room' using errcode = '53100'; end $$; create trigger no_room before insert on pawl.inbox execute function no_room()", "drop trigger no_room on pawl.inbox"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			admin, err := pgx.Connect(t.Context(), b.pool.Config().ConnString())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = admin.Close(t.Context()) })
			say := func(statement string) {
				t.Helper()
				if statement[:14] == "alter database" {
					statement = fmt.Sprintf(statement, pgx.Identifier{admin.Config().Database}.Sanitize())
				}
				if _, err := admin.Exec(t.Context(), "set default_transaction_read_only = off"); err != nil {
					t.Fatal(err)
				}
				if _, err := admin.Exec(t.Context(), statement); err != nil {
					t.Fatal(err)
				}
			}
			b.start()
			b.source.Send(pawl.Delivery{Key: "before", Payload: []byte("x")})
			b.until("the consumer works", func() bool { return b.source.Open() == 0 })

			say(c.broken)
			b.pool.Reset()
			before := b.source.Receives()
			const messages = 20
			for i := range messages {
				b.source.Send(pawl.Delivery{Key: fmt.Sprintf("k%d", i), Payload: []byte("x")})
			}
			b.until("the outage is noticed", func() bool { return b.counters.Count(pawl.EventError) > 0 })
			var received int
			patience.Watch(outage, func() { received = b.source.Receives() - before })
			say(c.mended)
			mended := time.Now()
			b.until("all is acknowledged", func() bool { return b.source.Open() == 0 })
			t.Logf("%d receives of %d messages in %v; the last was acknowledged %v after its end", received, messages, outage, time.Since(mended).Round(time.Millisecond))
			if received > 2*messages {
				t.Errorf("%d receives of %d messages while no claim could succeed", received, messages)
			}
			if n := b.counters.Count(pawl.EventSuspect); n > 0 {
				t.Errorf("%d good messages became suspects", n)
			}
			if n := b.count("select count(*) from effect"); n != messages+1 {
				t.Errorf("%d effects, want %d", n, messages+1)
			}
		})
	}
}

// A lock on a whole table, as CREATE INDEX takes it, is an outage and not a conflict. Otherwise the
// broker would count receives and dead-letter a queue of good messages before the index is built.
func TestConsumer_StopsReceivingWhileATableIsLocked(t *testing.T) {
	t.Parallel()
	plain := func(n int) pawl.Delivery { return pawl.Delivery{Key: fmt.Sprint(n), Payload: []byte("x")} }
	guarded := func(b *bed) {
		rows, err := guard.New(b.pool, guard.Table{Name: "thing"})
		if err != nil {
			b.Fatal(err)
		}
		b.form.handle = nil
		b.form.trigger = func(ctx context.Context, d pawl.Delivery) error {
			id, err := strconv.Atoi(d.Key)
			if err != nil {
				return err
			}
			return rows.Once(ctx, id+1, func(ctx context.Context, tx pgx.Tx) (any, error) { return nil, apply(ctx, tx, d) })
		}
	}
	for name, c := range map[string]struct {
		lock     string
		form     func(b *bed)
		delivery func(n int) pawl.Delivery
	}{
		"inbox":          {"pawl.inbox in share mode", func(*bed) {}, plain},
		"inbox, in vain": {"pawl.inbox in access exclusive mode", func(*bed) {}, plain},
		"inbox, batches": {"pawl.inbox in share mode", func(b *bed) { b.batches(nothing) }, plain},
		"lanes": {"pawl.lane in share mode", func(*bed) {}, func(n int) pawl.Delivery {
			return pawl.Delivery{Key: fmt.Sprint(n), OrderingKey: fmt.Sprint(n), Payload: []byte("x")}
		}},
		"semantic keys": {"pawl.inbox in share mode", func(*bed) {}, func(n int) pawl.Delivery {
			return pawl.Delivery{Key: fmt.Sprint(n), SemanticKey: fmt.Sprint(n), Payload: []byte("x")}
		}},
		"the trigger's own": {"thing in share mode", guarded, plain},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, things)
			c.form(b)
			b.start()
			const messages = 20
			locked, err := b.asks.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = locked.Rollback(context.Background()) }()
			if _, err := locked.Exec(t.Context(), "lock table "+c.lock); err != nil {
				t.Fatal(err)
			}
			for n := range messages {
				b.source.Send(c.delivery(n))
			}
			b.until("the outage is noticed", func() bool { return b.counters.Count(pawl.EventError) > 0 })
			patience.Watch(outage, func() {})
			received := b.source.Receives()
			if err := locked.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			b.until("all is acknowledged", func() bool { return b.source.Open() == 0 })
			t.Logf("%d receives of %d messages in %v", received, messages, outage)
			if received > 3*messages {
				t.Errorf("%d receives of %d messages while the table was locked", received, messages)
			}
			b.wantEffects(messages)
		})
	}
}

// A transaction that locks one delivery's row delays only that delivery.
func TestConsumer_ALockedRowIsNoOutage(t *testing.T) {
	t.Parallel()
	b := setup(t)
	held, err := b.asks.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = held.Rollback(context.Background()) }()
	if _, err := held.Exec(t.Context(), "select pawl_v1.inbox_claim('orders', 'held', sha256('x'))"); err != nil {
		t.Fatal(err)
	}
	b.start()
	b.source.Send(pawl.Delivery{Key: "held", Payload: []byte("x")})
	b.until("it is a conflict", func() bool { return b.counters.Count(pawl.EventConflict) > 1 })
	for n := range 20 {
		b.source.Send(order(n))
	}
	b.until("the others are acknowledged", func() bool { return b.source.Open() == 1 })
	if n := b.counters.Count(pawl.EventError); n > 0 {
		t.Errorf("the database counted as unavailable %d times", n)
	}
}
