package adopt

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/internal/testbed/patience"
)

// A step that comes too early is refused, and each step can be run again.
func TestRun_Order(t *testing.T) {
	t.Parallel()
	b := setup(t, example+"insert into processed_messages (message_id, body) values ('m1', 'a'), ('m2', 'b'), ('m3', null)")
	table := b.find(Choice{Table: "processed_messages", Consumer: "payments", Payload: "body"})
	refused := func(step, why, next string) {
		t.Helper()
		_, err := table.Run(t.Context(), b.Conn, step, func(Result) {})
		b.wantRefusal(err, why, next)
	}
	refused("backfill", "step shadow has not been run", "--step shadow")
	refused("switch", "step shadow has not been run", "--step shadow")
	refused("remove", "no process of consumer payments has reported itself", "--step switch")
	refused("luck", "there is no step luck", "shadow, backfill")
	b.run(table, "shadow")
	b.run(table, "shadow")
	refused("switch", "the shadow has not been called", "--step shadow printed")
	if r := b.run(table, "backfill"); r.Copied != 2 || r.Known != 0 || r.Left != 1 {
		t.Errorf("%+v", r)
	}
	b.exec("select adopt_payments_shadow('m1', 'm1', 'a', 'duplicate_ignored'), adopt_payments_shadow('m3', 'm3', 'c', 'duplicate_ignored')")
	if r := b.run(table, "backfill"); r.Copied != 0 || r.Known != 2 || r.Left != 0 {
		t.Errorf("%+v", r)
	}
	if r := b.run(table, "switch"); r.Differences != 1 || r.Left != 0 {
		t.Errorf("%+v", r)
	}
	b.exec("select adopt_payments_shadow('m4', 'm1', 'a', 'processed')")
	refused("switch", `the old table said processed and Pawl duplicate_ignored, 1 times, for instance for key "m1"`, "delete those rows of public.adopt_payments_differences")
	b.exec("truncate adopt_payments_differences; select adopt_payments_shadow('m1', 'm1', 'other', 'duplicate_ignored')")
	refused("switch", "Pawl mismatch", "find out")
	b.exec("insert into pawl.consumer (name) values ('payments'); insert into processed_messages values ('m5', 'e')")
	refused("remove", "Pawl does not know 1 row of", "--step backfill")
	b.want(3, "select count(*) from pg_proc where proname like 'adopt_payments_%'")
	b.run(table, "backfill")
	b.run(table, "remove")
	b.run(table, "remove")
	b.want(0, "select count(*) from pg_proc where proname like 'adopt_payments_%'")
	b.want(4, "select count(*) from processed_messages")
	b.exec("insert into pawl.inbox (consumer, key, hash, processed_at, job_id) values ('payments', 'new', sha256('n'), now(), null), ('payments', 'stored', sha256('n'), null, 1)")
	for _, copied := range []int64{1, 0} {
		if r := b.run(table, "back"); r.Copied != copied {
			t.Errorf("%+v, want %d", r, copied)
		}
	}
	b.want(5, "select count(*) from processed_messages")
}

// The removal says how rows that Pawl does not know come to need the table no more, and names no
// step that is refused.
func TestRemove_SaysHowRowsBecomeOld(t *testing.T) {
	t.Parallel()
	b := setup(t, `
create table seen (handler text, id text, body bytea, at timestamptz, primary key (handler, id));
insert into seen values ('it''s', 'old', null, now() - interval '40 days'), ('it''s', 'new', null, now()), ('it''s', 'untimed', null, null), ('other', 'untimed', null, null);
create table plain (id text primary key, body bytea);
insert into plain values ('a', null);
insert into pawl.consumer (name, window_ms) values ('c', 86400000)`)
	refused := func(table *Table, why, next string) {
		t.Helper()
		_, err := table.Run(t.Context(), b.Conn, "remove", func(Result) {})
		b.wantRefusal(err, why, next)
		if r := IsRefusal(err); r != nil && strings.Contains(r.Next, "backfill") != (table.Payload != nil) {
			t.Errorf("%q, with payload %v", r.Next, table.Payload)
		}
	}
	seen := Choice{Table: "seen", Consumer: "c", Scope: "handler", ScopeValue: "it's"}
	update := "update public.seen as p set at = clock_timestamp() where p.at is null and p.handler = 'it''s'"
	refused(b.find(seen), "Pawl does not know 2 rows", "wait until they are 31 days old; rows without a time (1) never become old, so first: "+update)
	seen.Payload = "body"
	table := b.find(seen)
	refused(table, "Pawl does not know 2 rows", "run --step backfill again, or wait until they are 31 days old; rows without a time (1)")
	b.exec(update)
	b.want(0, string(table.Untimed()))
	b.want(1, "select count(*) from seen where at is null")
	refused(table, "Pawl does not know 2 rows", "wait until they are 31 days old")
	b.exec("update seen set at = at - interval '32 days'")
	b.run(table, "remove")

	never := Choice{Table: "plain", Consumer: "c"}
	if notes := strings.Join(b.find(never).Notes, "\n"); !strings.Contains(notes, "the table is needed for ever: add a column") {
		t.Error(notes)
	}
	add := "alter table public.plain add column processed_at timestamptz not null default now()"
	refused(b.find(never), "Pawl does not know 1 row of", "add a time, and wait until they are 31 days old: "+add)
	never.Payload = "body"
	refused(b.find(never), "Pawl does not know 1 row of", "run --step backfill again, or add a time")
	b.exec(add)
	refused(b.find(never), "Pawl does not know 1 row of", "run --step backfill again, or wait until they are 31 days old")
	b.exec("update plain set processed_at = now() - interval '32 days'")
	b.run(b.find(never), "remove")
}

// A table of the broker's ids has none of the consumer's keys, so a backfill would copy in vain.
func TestBackfill_OtherKeys(t *testing.T) {
	t.Parallel()
	for typ, id := range map[string]string{"text": "broker-1", "bigint": "1"} {
		b := setup(t, "create table seen (id "+typ+" primary key, body bytea); insert into seen values ('"+id+"', 'a')")
		table := b.find(Choice{Table: "seen", Consumer: "payments", Payload: "body"})
		b.run(table, "shadow")
		b.exec("select adopt_payments_shadow('" + id + "', 'order-17', 'a', 'processed')")
		_, err := table.Run(t.Context(), b.Conn, "backfill", func(Result) {})
		b.wantRefusal(err, "none of the 1 keys", "leave --payload out")
		b.want(1, "select count(*) from pawl.inbox")
		b.exec("select adopt_payments_shadow('" + id + "', '" + id + "', 'a', 'processed')")
		b.run(table, "backfill")
	}
}

// Nothing that goes wrong in the shadow fails the effect.
func TestShadow_NeverFailsTheEffect(t *testing.T) {
	t.Parallel()
	b := setup(t, example)
	table := b.find(Choice{Table: "processed_messages", Consumer: "payments"})
	b.run(table, "shadow")
	b.exec("select adopt_payments_shadow('m1', null, 'a', 'processed'), adopt_payments_shadow('m2', repeat('k', 256), 'a', 'processed'), adopt_payments_shadow('m3', 'm3', null, 'processed')")
	b.want(3, "select count(*) from adopt_payments_differences where pawl in ('P4001', 'P4003')")
	b.exec(`begin; create role adopt_app; grant usage on schema public to adopt_app; set local role adopt_app;
select adopt_payments_shadow('m4', 'm4', 'a', 'processed'); reset role; commit; drop owned by adopt_app; drop role adopt_app`)
	b.want(3, "select count(*) from adopt_payments_differences")
	b.exec("drop table adopt_payments_differences; select adopt_payments_shadow('m2', repeat('k', 256), 'a', 'processed')")
}

// Roles that insert into the table may record differences.
func TestShadow_GrantsToWriters(t *testing.T) {
	t.Parallel()
	b := setup(t, example+`create role "adopt App"; grant insert on processed_messages to "adopt App"`)
	table := b.find(Choice{Table: "processed_messages", Consumer: "payments"})
	b.run(table, "shadow")
	b.want(1, `select count(*) where has_table_privilege('adopt App', 'adopt_payments_differences', 'insert')`)
	b.exec(`drop owned by "adopt App"; drop role "adopt App"`)
}

// Backfills at once, beside an old consumer that adds rows and a transaction that has a key, copy
// each row once and count what they could not copy.
func TestBackfill_BesideConsumers(t *testing.T) {
	t.Parallel()
	b := setup(t, example+"insert into processed_messages (message_id, body) select 'm' || n, 'x' from generate_series(1, 2500) as n")
	choice := Choice{Table: "processed_messages", Consumer: "payments", Payload: "body"}
	var all sync.WaitGroup
	url := b.Config().ConnString()
	for range 3 { // at once
		conn := b.connect(url)
		all.Go(func() {
			table, err := Find(t.Context(), conn, choice)
			if err == nil {
				_, err = table.Run(t.Context(), conn, "shadow", func(Result) {})
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	table := b.find(choice)
	held := b.connect(url)
	tx, err := held.Begin(t.Context())
	if err == nil {
		_, err = tx.Exec(t.Context(), "select adopt_payments_shadow('m7', 'm7', 'x', 'duplicate_ignored')")
	}
	if err != nil {
		t.Fatal(err)
	}
	results := make([]Result, 2)
	for i := range results {
		conn := b.connect(url)
		all.Go(func() {
			var err error
			if results[i], err = table.Run(t.Context(), conn, "backfill", func(Result) {}); err != nil {
				t.Error(err)
			}
		})
	}
	live := b.connect(url)
	for n := range 100 {
		err := pgx.BeginFunc(t.Context(), live, func(tx pgx.Tx) error {
			id := fmt.Sprint("a", n) // before the cursor of the backfills
			_, err := tx.Exec(t.Context(), "insert into processed_messages (message_id, body) values ($1, 'x')", id)
			if err == nil {
				_, err = tx.Exec(t.Context(), "select adopt_payments_shadow($1::text, $1::text, 'x', 'processed')", id)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	all.Wait()
	if results[0].Left == 0 || results[1].Left == 0 {
		t.Errorf("m7 is held, and nothing is left: %+v", results)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.want(1, string(table.Left()))
	if r := b.run(table, "backfill"); r.Copied != 1 || r.Known != 2599 || r.Left != 0 {
		t.Errorf("%+v", r)
	}
	b.want(0, "select count(*) from adopt_payments_differences")
}

// A backfill that is cut off in the middle goes on when it is run again.
func TestBackfill_CutOff(t *testing.T) {
	t.Parallel()
	b := setup(t, example+"insert into processed_messages (message_id, body) select 'm' || n, 'x' from generate_series(1001, 4000) as n")
	table := b.find(Choice{Table: "processed_messages", Consumer: "payments", Payload: "body"})
	b.run(table, "shadow")
	// the fingerprint of one row waits for a lock that this test has
	holder := &bed{t, b.connect(b.Config().ConnString())}
	holder.exec("select pg_advisory_lock(7)")
	b.exec(`update processed_messages set body = 'wait' where message_id = 'm2500';
create or replace function adopt_payments_fingerprint(p_body bytea) returns bytea language plpgsql as $$
begin
  if p_body = 'wait' then perform pg_advisory_xact_lock(7); end if;
  return sha256(int8send(octet_length(p_body)) || p_body);
end $$`)
	conn := b.connect(b.Config().ConnString())
	failed := make(chan error, 1)
	go func() {
		_, err := table.Run(context.WithoutCancel(t.Context()), conn, "backfill", func(Result) {})
		failed <- err
	}()
	patience.Blocked(t, b.Conn, 1, "%adopt_payments_backfill(%")
	b.exec(fmt.Sprintf("select pg_terminate_backend(%d)", conn.PgConn().PID()))
	if err := patience.Receive(t, "the end of the backfill", failed); err == nil {
		t.Error("the backfill does not report its lost connection")
	}
	holder.exec("select pg_advisory_unlock(7)")
	b.want(1000, "select count(*) from pawl.inbox")
	b.run(table, "shadow")
	if r := b.run(table, "backfill"); r.Copied != 2000 || r.Known != 1000 || r.Left != 0 {
		t.Errorf("%+v", r)
	}
}
