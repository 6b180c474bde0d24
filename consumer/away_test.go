package consumer_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/patience"
)

// Connections that were made while the database took no claims are not used afterwards: one that is
// read-only would fail another delivery.
func TestConsumer_DropsTheConnectionsOfAnOutage(t *testing.T) {
	t.Parallel()
	b := setup(t, `create sequence refused;
create function no_room() returns trigger language plpgsql as $$ begin perform nextval('public.refused'); raise exception 'no room' using errcode = '53100'; end $$;
create trigger no_room before insert on pawl.inbox execute function no_room();`)
	b.start()
	b.source.Send(pawl.Delivery{Key: "k", Payload: []byte("x")})
	// The delivery may be refused twice, as one call of Receive is under way when the outage is
	// noticed. Then probes are.
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

// While the database cannot take a claim, for whatever reason, the consumer stops receiving: a broker counts receives, and buries good
// messages. It goes on soon after.
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
			b.until("the outage is noticed", func() bool { return b.counters.Count(pawl.EventTrouble) > 0 })
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
