package schematest_test

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pawl-go/pawl/internal/contract"
	"github.com/pawl-go/pawl/pawltest"
)

// lived creates a command with its answer, its event and its call, a stored delivery that died
// twice at a gate, a job with a key, and a cancelled job. An operator has acted on each.
const lived = `
select pawl_v1.command_claim('orders/acme', 'k-1', sha256('{"n": 1}'));
select pawl_v1.outbox_append('billing', 'OrderPlaced', 'order', '17', 'secret', '{"scope": "orders/acme", "key": "k-1"}');
select pawl_v1.command_fail('orders/acme', 'k-1', c.fence, c.hash, '{}', '{"unknown": true}') from pawl.command as c;
select pawl_v1.command_settle('orders/acme', 'k-1', (select c.fence from pawl.command as c where c.key = 'k-1'), 'executed', 'ann', 'seen in the ledger', '{"result": "secret"}');
begin;
select pawl_v1.inbox_claim('orders', 'm-1', sha256('secret')), pawl_v1.delivery_keep('orders', 'm-1', 'secret');
select pawl_v1.inbox_store('orders', 'm-1', 'inbox/orders', 'delivery', 'secret',
  '{"dead": true, "headers": {"pawl-inbox-key": "m-1"}, "error": {"error": "out of stock"}}');
commit;
select pawl_v1.job_enqueue('mail', 'welcome', 'secret', '{"key": "u-1", "lane": "u"}');
select pawl_v1.job_cancel(3, 'bob', 'called off');
select pawl_v1.step_begin('job/mail', '3@1', 'send', sha256('secret'), '{"recovery": "at_most_once", "provider_key": "p-1", "job_id": 3}');
select pawl_v1.step_end('job/mail', '3@1', 'send', e.fence, 'ambiguous') from pawl.step as e;
select pawl_v1.sequence_gate_reset('orders', 'account 7', 41, 'ann', 'they begin at 42');
begin;
select pawl_v1.inbox_claim('orders', 'm-2', sha256('')), pawl_v1.sequence_gate_pass('orders', 'account 7', 44, '{"mode": "strict"}');
select pawl_v1.inbox_store('orders', 'm-2', 'inbox/orders', 'delivery', '', '{"attempts": 0}');
select pawl_v1.sequence_gate_hold('orders', 'account 7', 44, 4);
commit;
select pawl_v1.inbox_claim('orders', 'm-3', sha256(''));
select pawl_v1.inbox_forget('orders', 'm-3', 'ann', 'reversed by hand');
select pawl_v1.job_discard(2, 'ann', 'a test');
`

// Each kind of key leads to its whole story in the order of time, without payloads.
func TestExplain(t *testing.T) {
	t.Parallel()
	b := setup(t, lived)
	story := func(key, options string) string {
		return fmt.Sprintf(`select string_agg(concat_ws(' ', e.kind, e.scope, e.key, e.event), ', ')
  from pawl_v1.explain('%s', '%s') as e where e.kind <> 'looked'`, key, options)
	}
	for key, want := range map[string][]string{
		"k-1": {"command orders/acme k-1 claimed", "enqueue_key outbox/billing 11:orders/acme3:k-111:OrderPlaced taken", "job outbox/billing 1 enqueued",
			"command orders/acme k-1 succeeded", "command orders/acme k-1 command_settle", "job outbox/billing 1 pending", "command orders/acme k-1 memory_ends"},
		"11:orders/acme3:k-111:OrderPlaced": {"enqueue_key outbox/billing", "job outbox/billing 1 pending"},
		"m-1":                               {"delivery orders m-1 received", "delivery orders m-1 kept", "job 2 job_discard", "job 2 gone"},
		"m-2":                               {"delivery orders m-2 received", "gate orders account 7 held", "job inbox/orders 4 pending"},
		"m-3":                               {"delivery orders m-3 inbox_forget"},
		"u-1":                               {"enqueue_key mail u-1 taken", "job mail 3 enqueued", "step job/mail 3@1 planned", "step job/mail 3@1 called", "step job/mail 3@1 ambiguous", "step job/mail 3@1 unknown"},
		"3":                                 {"enqueue_key mail u-1 taken", "job mail 3 enqueued", "job 3 job_cancel", "job mail 3 cancelled"},
		"2":                                 {"job 2 job_discard", "job 2 gone"},
		"account 7":                         {"gate orders account 7 sequence_gate_reset", "gate orders account 7 held", "gate orders account 7 stands"},
	} {
		got := b.main.Do(story(key, "{}"))
		rest := got
		for _, moment := range want {
			_, after, found := strings.Cut(rest, moment)
			if !found {
				t.Errorf("%s: no %q, in this order, in %s", key, moment, got)
				break
			}
			rest = after
		}
	}
	b.is("select count(*) from pawl_v1.explain('k-1') as e where e::text like '%secret%' or e.detail::text like '%secret%'", "0")
	b.is(story("k-1", `{"scope": "orders/other"}`), "<nil>")
	// With a scope, only the jobs of its queues are found by their ids, also those that are gone.
	for scope, want := range map[string]string{"mail": "3", "billing": "1", "outbox/billing": "1", "orders": "2 4", "inbox/orders": "2 4", "document": "<nil>"} {
		b.is(fmt.Sprintf(`select string_agg(n::text, ' ' order by n) from generate_series(1, 4) as n
 where exists (select from pawl_v1.explain(n::text, '{"scope": "%s"}') as e where e.kind = 'job')`, scope), want)
	}
	b.is(`select e.kind, e.detail from pawl_v1.explain('never') as e`, "looked map[beyond:[] consumers:1 queues:2 scopes:1 steps:1]")
	b.is("select pawl_v1.explain('')", "P4001")
	b.is(`select pawl_v1.explain('k', '{"scoop": 1}')`, "P4004")
	b.is("select array_agg(e.at) = array_agg(e.at order by e.at) from pawl_v1.explain('k-1') as e", "true")
}

// refused returns a script that stores a delivery as a consumer dead-letters one whose key came
// with another payload.
func refused(name, key string) string {
	return fmt.Sprintf(`begin;
select pawl_v1.inbox_claim('orders', 'pawl/mismatch/%[1]s', sha256('%[1]s'));
select pawl_v1.inbox_store('orders', 'pawl/mismatch/%[1]s', 'inbox/orders', 'delivery', 'secret', jsonb_build_object('dead', true,
  'headers', jsonb_build_object('pawl-key', %[2]s, 'pawl-inbox-key', 'pawl/mismatch/%[1]s'), 'error', '{"code": "mismatch", "error": "a different payload"}'::jsonb));
commit;
`, name, key)
}

// A delivery with a reused key and another payload belongs to the story of that key, under any
// inbox key. That holds for a dead letter and for a retried delivery. A key that is too long does
// not prevent the dead letter.
func TestExplain_Refused(t *testing.T) {
	t.Parallel()
	b := setup(t, "select pawl_v1.inbox_claim('orders', 'm-1', sha256('first'));\n"+refused("a", "'m-1'")+refused("b", "'m-1'")+refused("c", "'m-2'")+
		refused("long", "(select string_agg(md5(n::text), '') from generate_series(1, 3000) as n)"))
	of := func(key, options string) string {
		return fmt.Sprintf("select string_agg(e.key || ' ' || e.event, ', ' order by e.key, e.event) from pawl_v1.explain('%s', '%s') as e where e.kind = 'job'", key, options)
	}
	const both = "1 dead_letter, 1 enqueued, 1 failed, 2 dead_letter, 2 enqueued, 2 failed"
	b.is(of("m-1", "{}"), both)
	b.is(of("m-1", `{"scope": "orders"}`), both)
	b.is(of("m-1", `{"scope": "inbox/orders"}`), both)
	b.is(of("m-1", `{"scope": "others"}`), "<nil>")
	b.is("select count(*) from pawl_v1.explain('m-1') as e where e.kind = 'delivery' and e.key like 'pawl/mismatch/%'", "2")
	b.is("select o.outcome from pawl_v1.job_retry(2, 'ann', 'both are wanted') as o", "retried")
	b.is(of("m-1", "{}"), "1 dead_letter, 1 enqueued, 1 failed, 2 enqueued, 2 failed, 2 job_retry, 2 pending")
	b.is(of("m-1", `{"scope": "inbox/orders"}`), "1 dead_letter, 1 enqueued, 1 failed, 2 enqueued, 2 failed, 2 job_retry, 2 pending")
	b.is("select s.detail ->> 'message_key', s.advice ~ 'another payload.*job_discard, unless' from pawl_v1.stale_classify() as s where s.key = '3'", "m-2 true")
	b.is("select count(*) from pawl_v1.explain('m-1') as e where e.detail::text like '%secret%'", "0")
}

// A finished job is found in the archive, and a key beyond the first 500 scopes is found by its
// scope.
func TestExplain_ArchiveAndScopes(t *testing.T) {
	t.Parallel()
	b := setup(t, `select pawl_v1.queue_set('q', '{"archive": true}', 'ann', 'r'), pawl_v1.job_enqueue('q', 'k', '', '{"key": "done"}');
select pawl_v1.job_finish(c.id, c.fence) from pawl_v1.job_claim_id(1, null) as c;
select pawl_v1.command_claim('s' || lpad(n::text, 4, '0'), 'k', sha256('')) from generate_series(1, 502) as n`)
	b.is("select string_agg(e.event, ' ') from pawl_v1.explain('done') as e", "taken enqueued succeeded memory_ends looked")
	b.is("select string_agg(e.event, ' ') from pawl_v1.explain('1') as e", "taken enqueued succeeded memory_ends looked")
	b.is("select e.detail -> 'beyond', e.detail -> 'scopes' from pawl_v1.explain('k') as e where e.kind = 'looked'", "[scopes] 500")
	b.is("select count(*) from pawl_v1.explain('k') as e where e.scope = 's0502'", "0")
	b.is(`select count(*) > 0 from pawl_v1.explain('k', '{"scope": "s0502"}') as e where e.scope = 's0502'`, "true")
}

// plenty inserts n rows into every table that explain reads, with 40 scopes, consumers and queues,
// over a week.
func plenty(n int) string {
	return fmt.Sprintf(`
insert into pawl.command (scope, key, hash, status, created_at, expires_at)
select 's' || n %% 40, 'key ' || n, sha256(''), 'succeeded', t.at, now() + interval '1 day' from generate_series(1, %[1]d) as n, lateral (select now() - n * interval '0.6 s') as t (at);
insert into pawl.inbox (consumer, key, hash, received_at, processed_at)
select 's' || n %% 40, 'key ' || n, sha256(''), now() - n * interval '0.6 s', now() from generate_series(1, %[1]d) as n;
insert into pawl.delivery (consumer, key, payload, received_at)
select 's' || n %% 40, 'key ' || n, '', now() - n * interval '0.6 s' from generate_series(1, %[1]d) as n;
insert into pawl.job (queue, kind, payload, created_at)
select 'outbox/s' || n %% 40, 'k', '', now() - n * interval '0.6 s' from generate_series(1, %[1]d) as n;
insert into pawl.job_key (queue, key, hash, job_id, created_at, expires_at)
select 'outbox/s' || n %% 40, 'key ' || n, sha256(''), n, now() - n * interval '0.6 s', now() + interval '1 day' from generate_series(1, %[1]d) as n;
insert into pawl.archive_0 (id, fence, created_at, finished_at, priority, attempts, crashes, queue, kind, payload)
select n, 1, now(), now(), 2, 1, 0, 's' || n %% 40, 'k', '' from generate_series(%[1]d + 1, 2 * %[1]d) as n;
insert into pawl.step (scope, key, step, hash, recovery, provider_key, expires_at)
select 'job/s' || n %% 40, 'key ' || n, 'send', sha256(''), 'keyed', 'p', now() + interval '1 day' from generate_series(1, %[1]d) as n;
insert into pawl.step_call (fence, scope, key, step, probe, not_after)
select n, 'job/s' || n %% 40, 'key ' || n, 'send', false, now() from generate_series(1, %[1]d) as n;
insert into pawl.sequence_gate (consumer, resource, last) select 's' || n %% 40, 'key ' || n, n from generate_series(1, %[1]d) as n;
insert into pawl.audit (actor, verb, target, reason, before) select 'ann', 'job_retry', 'job ' || n, 'r', '{}' from generate_series(1, %[1]d) as n;
insert into pawl.job (queue, kind, payload, status, headers, last_errors)
select 'inbox/s1', 'delivery', '', 'dead_letter', jsonb_build_object('pawl-key', 'key ' || n, 'pawl-inbox-key', 'pawl/mismatch/' || n), '[{"code": "mismatch", "error": "e"}]'
  from generate_series(1, least(%[1]d, 10000)) as n;
insert into pawl.inbox (consumer, key, hash, job_id) select 's1', j.headers ->> 'pawl-inbox-key', sha256(''), j.id from pawl.job as j where j.queue = 'inbox/s1';
`, n)
}

// explainRows is the number of rows per table in TestExplain_ReadsByIndexes; 0 means few.
var explainRows, _ = strconv.Atoi(os.Getenv("PAWL_EXPLAIN_ROWS"))

// Explain scans no table completely, with any statistics. With a million rows per table it is as
// fast as with few.
func TestExplain_ReadsByIndexes(t *testing.T) {
	t.Parallel()
	url := pawltest.URL(t)
	conn := connect(t, url)
	exec := func(script string) {
		t.Helper()
		if _, err := conn.Exec(t.Context(), script); err != nil {
			t.Fatal(err)
		}
	}
	rows := 20_000
	if explainRows > 0 {
		rows = explainRows
	}
	exec("set synchronous_commit = off; analyze pawl.command, pawl.inbox, pawl.delivery, pawl.job, pawl.job_key, pawl.step, pawl.step_call, pawl.sequence_gate, pawl.audit, pawl.archive_0")
	exec(plenty(rows))
	look := func(when string) {
		t.Helper()
		var first, later []time.Duration // in a session: with and without planning
		for _, key := range []string{"key 7", "7", "never", "key 4711", fmt.Sprint(rows + 1)} {
			fresh := connect(t, url)
			tx, err := fresh.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, took := range []*[]time.Duration{&first, &later} {
				began := time.Now()
				if _, err := tx.Exec(t.Context(), "select * from pawl_v1.explain($1)", key); err != nil {
					t.Fatal(err)
				}
				*took = append(*took, time.Since(began).Round(time.Microsecond))
			}
			var read []string
			if err := tx.QueryRow(t.Context(), `select coalesce(array_agg(c.relname::text), '{}')
  from pg_class as c
 where c.relnamespace = 'pawl'::regnamespace
   and c.relkind = 'r'
   and pg_stat_get_xact_numscans(c.oid) > 0`).Scan(&read); err != nil {
				t.Fatal(err)
			}
			if len(read) > 0 {
				t.Errorf("%s, key %s: reads the whole of %v", when, key, read)
			}
			if err := tx.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		t.Logf("%s, %d rows in each table: first in a session %v, later %v", when, rows, first, later)
	}
	look("statistics of an empty table")
	exec("analyze")
	look("statistics of after")
}

// The steps of a delivery with a semantic key belong to that key, and the delivery's story contains
// them, by its job and by the kept delivery.
func TestExplain_StepsOfASecondName(t *testing.T) {
	t.Parallel()
	b := setup(t, `begin;
select pawl_v1.inbox_claim('orders', 'm-1', sha256('secret')), pawl_v1.delivery_keep('orders', 'm-1', 'secret',
  '{"stored_as": {"queue": "inbox/orders", "kind": "delivery", "semantic": "pawl/semantic/refund-17"}}');
select pawl_v1.inbox_store('orders', 'm-1', 'inbox/orders', 'delivery', 'secret',
  '{"dead": true, "headers": {"pawl-inbox-key": "m-1", "pawl-step-key": "pawl/semantic/refund-17"}, "error": {"error": "out of stock"}}');
commit;
select pawl_v1.step_begin('inbox/orders', 'pawl/semantic/refund-17', 'pay', sha256(''), '{"recovery": "at_most_once", "provider_key": "p-1", "job_id": 1}');`)
	const steps = "select string_agg(e.key || ' ' || e.event, ', ' order by e.event) from pawl_v1.explain('m-1') as e where e.kind = 'step'"
	b.is(steps, "pawl/semantic/refund-17 called, pawl/semantic/refund-17 planned, pawl/semantic/refund-17 planned")
	b.is("select s.advice ~ 'step pay .* may have been executed' from pawl_v1.stale_classify('job') as s", "true")
	b.do("delete from pawl.delivery")
	b.is(steps, "pawl/semantic/refund-17 called, pawl/semantic/refund-17 planned, pawl/semantic/refund-17 planned")
	b.do("update pawl.job set headers = headers - 'pawl-step-key'")
	b.is(steps, "<nil>")
}

// The scope of a step's owner is found by the owner's own scope: the table of a guard, with or
// without its schema, as events name it, and names that are too long to be written out.
func TestExplain_OwnersOfSteps(t *testing.T) {
	t.Parallel()
	b := setup(t, "")
	long := strings.Repeat("x", 250)
	owner := func(scope, key string) {
		t.Helper()
		b.do(fmt.Sprintf(`select pawl_v1.step_begin('%s', '%s', 'charge', sha256('p'), '{"recovery": "keyed", "provider_key": "k"}')`, scope, key))
	}
	for _, scope := range []string{"guard/public.orders", `guard/"Shop"."the orders"`, "guard/shop.myorders", "command/web", "command/orders", "inbox/orders", "job/orders",
		contract.OwnerOf("command", long, "17", 0).Scope} {
		owner(scope, "17")
	}
	for scope, want := range map[string]string{
		"public.orders":           "guard/public.orders",
		"guard/public.orders":     "guard/public.orders",
		"Shop.the orders":         `guard/"Shop"."the orders"`,
		`"Shop"."the orders"`:     `guard/"Shop"."the orders"`,
		"the orders":              `guard/"Shop"."the orders"`,
		"orders":                  "command/orders guard/public.orders inbox/orders job/orders",
		"web":                     "command/web",
		"rders":                   "<nil>",
		"shop.orders":             "<nil>",
		long:                      contract.OwnerOf("command", long, "17", 0).Scope,
		strings.Repeat("y", 1000): "<nil>",
	} {
		b.is(fmt.Sprintf(`select string_agg(distinct e.scope, ' ' order by e.scope) from pawl_v1.explain('17', jsonb_build_object('scope', '%s')) as e where e.kind = 'step'`, scope), want)
	}
	b.is("select count(distinct e.scope) from pawl_v1.explain('17') as e where e.kind = 'step'", "8")
	// A table that is given with its schema is found beyond the first 500 scopes.
	b.do("insert into pawl.step (scope, key, step, hash, recovery, provider_key, expires_at) select 'a' || n, 'k', 's', sha256('p'), 'keyed', 'k', now() + interval '1 day' from generate_series(1, 500) as n")
	b.is(`select string_agg(distinct e.scope, ' ') from pawl_v1.explain('17', '{"scope": "public.orders"}') as e where e.kind = 'step'`, "guard/public.orders")
}
