//go:build proof

package schematest_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/internal/testbed/pgtest"
	"github.com/pawl-go/pawl/internal/testbed/pgtest/hostile"
	"github.com/pawl-go/pawl/migrate"
	"github.com/pawl-go/pawl/schema"
)

// If others may create objects in a schema of the path, installing Pawl resolves no name to their
// objects. No function of Pawl calls them, for any caller.
func TestFunctions_CallNothingOfOthers(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t, pgtest.Template{Name: "empty"})
	conn := connect(t, url)
	if err := hostile.Plant(t.Context(), conn); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), "set search_path = public, pg_catalog"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := migrate.Down(t.Context(), conn, 0, nil); err != nil {
			t.Fatal("down:", err)
		}
		if _, err := migrate.Up(t.Context(), conn, nil); err != nil {
			t.Fatal("up:", err)
		}
		if _, err := conn.Exec(t.Context(), schema.Roles()); err != nil {
			t.Fatal("roles:", err)
		}
	}
	if _, err := conn.Exec(t.Context(), "reset search_path"); err != nil {
		t.Fatal(err)
	}
	if err := hostile.Overload(t.Context(), conn); err != nil {
		t.Fatal(err)
	}
	if err := hostile.Deny(t.Context(), conn); err != nil {
		t.Fatal(err)
	}
	for name, path := range hostile.Paths {
		t.Run(name, func(t *testing.T) {
			if _, err := conn.Exec(t.Context(), "set search_path = "+path); err != nil {
				t.Fatal(err)
			}
			wantHijack(t, conn, path)
			exercise(t, conn, "none")
			// Without the right to execute the planted objects, a statement that names one fails
			// even if no row makes it run.
			exercise(t, conn, "pawl_operator")
		})
	}
}

// wantHijack checks that the planted objects are found.
func wantHijack(t *testing.T, conn *pgx.Conn, path string) {
	t.Helper()
	for _, statement := range []string{"select 1 || 'x'::pg_catalog.text", "select 'x'::pawl.name = 'y'::pg_catalog.text"} {
		if _, err := conn.Exec(t.Context(), statement); err == nil || !strings.Contains(err.Error(), hostile.Mark) {
			t.Errorf("%s with the path %s: %v, want it to be hijacked", statement, path, err)
		}
	}
}

// exercise calls each function of the contract at least once and reads each view, as a role.
func exercise(t *testing.T, conn *pgx.Conn, role string) {
	t.Helper()
	var left []string
	rows, _ := conn.Query(t.Context(), `select p.proname::pg_catalog.text
  from pg_catalog.pg_proc as p
 where p.pronamespace operator(pg_catalog.=) 'pawl_v1'::pg_catalog.regnamespace
   and p.proname operator(pg_catalog.!~~) '\_%'
 union all
select c.relname::pg_catalog.text
  from pg_catalog.pg_class as c
 where c.relnamespace operator(pg_catalog.=) 'pawl_v1'::pg_catalog.regnamespace`)
	left, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	for _, statement := range slices.Concat([]string{empty, "set role " + role}, surface, []string{"reset role"}) {
		if err := alone(t, conn, statement); err != nil {
			t.Errorf("as %s: %s: %v", role, statement, err)
		}
		for _, named := range regexp.MustCompile(`pawl_v1\.(\w+)`).FindAllStringSubmatch(statement, -1) {
			left = slices.DeleteFunc(left, func(name string) bool { return name == named[1] })
		}
	}
	if len(left) > 0 {
		t.Errorf("not called here: %v", left)
	}
}

// surface contains calls without operators or unqualified names outside of Pawl. An upper-case word
// stands for the latest row.
var surface = []string{
	"select pawl_v1.inbox_claim('c', 'm1', HASH)",
	"select pawl_v1.inbox_claim('c', 'm1', HASH)",
	`select pawl_v1.inbox_claim('c', 'm2', HASH, '{"result_ref": "r", "lane": "l", "queue": "q"}')`,
	"select pawl_v1.inbox_claim_many('c', '{m3,m4}', array[HASH, HASH]::pg_catalog.bytea[])",
	`begin;
select pawl_v1.inbox_claim('c', 'm5', HASH);
select pawl_v1.inbox_store('c', 'm5', 'inbox/c', 'delivery', 'x', '{"headers": {"pawl-key": "m5"}, "error": {"error": "e", "code": "22000"}}');
select pawl_v1.sequence_gate_hold('c', 'r', 7, JOB);
select pawl_v1.sequence_gate_hold_again('c', 'r', 7, 'm5', JOB, '{}');
commit`,
	`select pawl_v1.sequence_gate_pass('c', 'r', 1, '{"mode": "strict", "first": 1}')`,
	"select pawl_v1.sequence_gate_reset('c', 'r', 3, 'a', 'why')",
	"select pawl_v1.sequence_gate_release('c', 'r', 'a', 'why')",
	`begin;
select pawl_v1.inbox_claim('c', 'm6', HASH);
select pawl_v1.inbox_store('c', 'm6', 'inbox/c', 'delivery', 'x', '{"dead": true}');
select pawl_v1.inbox_settle('c', 'm6', JOB);
select pawl_v1.inbox_reserve('c', 'r', HASH, JOB);
select pawl_v1.inbox_reserve('c', 'r', HASH, 0);
select pawl_v1.inbox_unreserve('c', 'r', 0);
commit`,
	"select pawl_v1.consumer_report('c', 1000, '{\"horizon_ms\": 10}')",
	"select pawl_v1.inbox_memory('c')",
	"begin isolation level serializable; select pawl_v1.inbox_memory('new'); commit",
	`select pawl_v1.delivery_keep('c', 'm1', 'body', '{"headers": {"a": "b"}, "verified_by": "me", "stored_as": {"queue": "q", "kind": "k"}}')`,
	"select pawl_v1.inbox_replay('c', 'm1', 'a', 'why')",
	"select pawl_v1.inbox_forget('c', 'm1', 'a', 'why')",
	"select pawl_v1.inbox_purge('c', 1000, 1000, '{\"unreported\": true}'), pawl_v1.delivery_purge('c', 0)",

	"select pawl_v1.worker_register('w')",
	`select pawl_v1.worker_heartbeat(WORKER, '{"report": {"queues": ["q"], "handlers": {"k": {"runs": 30, "p99_ms": 9, "timeout_ms": 9}}, "drain_ms": 1}}')`,
	"select pawl_v1.worker_attend(WORKER)",
	"select pawl_v1.job_enqueue('q', 'k', 'x')",
	`select pawl_v1.job_enqueue('q', 'k', 'x', '{"key": "a", "priority": 1, "headers": {"a": "b"}, "max_attempts": 3}')`,
	`select pawl_v1.job_enqueue('q', 'k', 'x', '{"key": "a", "lane": "l"}')`,
	`select pawl_v1.job_enqueue('q', 'k', 'x', '{"lane": "l2", "lane_policy": "skip"}')`,
	"select pawl_v1.job_enqueue_many('{q,q}', '{k,k}', array['x','x']::pg_catalog.bytea[], '{b,b}')",
	`select pawl_v1.job_enqueue_many('{q,q}', '{k,k}', array['x','x']::pg_catalog.bytea[], p_options => '{"lanes": ["l2", "l2"]}')`,
	"select pawl_v1.worker_asleep('{q}')",
	"select pawl_v1.job_kick('{q}'), pawl_v1.worker_awake('{q,r}')",
	`select pawl_v1.queue_set('q', '{"archive": true, "mode": "running"}', 'a', 'why')`,
	"select pawl_v1.job_enqueue('q', 'k', 'x')",
	"select c.outcome, c.id, f.outcome from pawl_v1.job_claim_id(JOB, null) as c, lateral pawl_v1.job_renew(c.id, c.fence) as f",
	"select c.id, h.outcome, f.outcome from pawl_v1.job_claim('q', WORKER, 1) as c, lateral pawl_v1.job_hold(c.id, c.fence) as h, lateral pawl_v1.job_finish(c.id, c.fence) as f",
	"select h.outcome from pawl_v1.job_claim('q', WORKER, 1) as c, lateral pawl_v1.job_hold_many(array[c.id], array[c.fence]) as h",
	"select pawl_v1.worker_isolate(WORKER, JOB, FENCE, false), pawl_v1.queue_death('q')",
	`select x.outcome from pawl_v1.job_claim('q', WORKER, 1) as c, lateral pawl_v1.job_open(c.id, c.fence) as o,
  lateral pawl_v1.job_close(c.id, c.fence, o.outcome, o.xact, o.lane) as x`,
	"select f.outcome from pawl_v1.job_claim('q', WORKER, 1) as c, lateral pawl_v1.job_finish_many(array[c.id], array[c.fence]) as f",
	"select pawl_v1.job_enqueue('q', 'k', 'x')",
	`select t.outcome from pawl_v1.job_claim('q', WORKER, 1) as c, lateral pawl_v1.job_exchange(array[c.id], array[c.fence], 'q', WORKER, 1, '{"kinds": ["k"]}') as t`,
	`select pawl_v1.job_enqueue('q', 'k', 'x', '{"lane": "l3"}')`,
	`select f.outcome from pawl_v1.job_claim_id(JOB, WORKER) as c, lateral pawl_v1.job_fail(c.id, c.fence, '{"error": "e", "code": "x"}', '{"final": true}') as f`,
	`select pawl_v1.job_enqueue('lr', 'k', 'x', '{"lane": "r"}'), pawl_v1.job_enqueue('lr', 'k', 'x', '{"lane": "r"}')`,
	`select f.outcome from pawl_v1.job_claim('lr', WORKER, 1) as c, lateral pawl_v1.lane_batch(array[c.id], array[c.fence]) as r,
  lateral pawl_v1.lane_finish(array[c.id], array[c.fence], array[r.id]) as f`,
	"select pawl_v1.lane_unblock('q', 'l3', 'a', 'why')",
	"select pawl_v1.lane_policy('q', 'l3', 'park', 'a', 'why')",
	"select pawl_v1.lane_promote(LANE), pawl_v1.lane_sweep(), pawl_v1.lane_purge()",
	"select pawl_v1.job_enqueue('q', 'k', 'x')",
	"select r.outcome from pawl_v1.job_claim_id(JOB, WORKER) as c, lateral pawl_v1.job_recall(c.id) as r",
	"select pawl_v1.job_release(JOB, FENCE, '{\"retry_in_ms\": 5}')",
	`begin;
select pawl_v1.job_enqueue('q', 'k', 'x');
select i.outcome from pawl_v1.job_claim_id(JOB, WORKER) as c, lateral pawl_v1.worker_isolate(WORKER, JOB, c.fence) as i;
select x.outcome from pawl_v1.job_open(JOB, FENCE) as o, lateral pawl_v1.job_close(JOB, FENCE, o.outcome, o.xact, o.lane) as x;
rollback`,
	"select pawl_v1.job_reschedule(JOB, 0), pawl_v1.job_cancel_own(JOB)",
	"select pawl_v1.job_enqueue('q', 'k', 'x')",
	"select pawl_v1.job_cancel(JOB, 'a', 'why'), pawl_v1.job_retry(JOB, 'a', 'why'), pawl_v1.job_discard(JOB, 'a', 'why', '{\"from\": [\"pending\"]}')",
	"select pawl_v1.job_sweep('{k}'), pawl_v1.queue_death('q')",
	"select pawl_v1.job_key_purge(10, '{\"older_than_ms\": 0}')",
	"select pawl_v1.rollup_add('queue', '{q,q}', '{succeeded,retryable}', '{1,2}'), pawl_v1.rollup_add('queue', '{q,q}', '{succeeded,retryable}', '{1,2}', '{\"levels\": true}')",
	"select pawl_v1.stale_write_add('job', '{q}', '{1}', '{1}', '{w}')",
	"select pawl_v1.archive_sweep()",

	`select pawl_v1.command_claim('s', 'k1', HASH, '{"lease_ms": 60000, "claimed_by": "me"}')`,
	"select pawl_v1.command_hold('s', 'k1', COMMAND), pawl_v1.command_renew('s', 'k1', COMMAND)",
	"select pawl_v1.command_succeed('s', 'k1', COMMAND, 'r', 'b', '{\"response_status\": 200}')",
	"select pawl_v1.command_claim('s', 'k1', HASH)",
	"select pawl_v1.command_claim('s', 'k1', pg_catalog.sha256('other'))",
	"select pawl_v1.command_open('s', 'k1', HASH, 1000), pawl_v1.command_open('s', 'k1', pg_catalog.sha256('other'), 1000)",
	`select x.outcome from pawl_v1.command_open('s', 'k0', HASH, 1000, '{"wait_ms": 10}') as o,
       lateral pawl_v1.command_close('s', 'k0', HASH, o.fence, o.xact, 'r', 'b', '{"response_status": 200, "retention_ms": 1000}') as x`,
	`select f.outcome from pawl_v1.command_open('s', 'k3', HASH) as o, lateral pawl_v1.command_fail('s', 'k3', o.fence, HASH, '{}') as f`,
	`select x.outcome from pawl_v1.command_open('s', 'k3', HASH) as o, lateral pawl_v1.command_close('s', 'k3', HASH, o.fence, o.xact) as x`,
	`select f.outcome from pawl_v1.command_open('s', 'k2', HASH) as o,
       lateral pawl_v1.command_fail('s', 'k2', o.fence, HASH, '{"error": "e", "code": "c"}', '{"unknown": true}') as f`,
	"select pawl_v1.command_settle('s', 'k2', COMMAND, 'executed', 'a', 'why')",
	"select pawl_v1.command_replayed('{s}', '{1}'), pawl_v1.command_purge(), pawl_v1.replay_purge(0)",
	`select pawl_v1.step_begin('s', 'k1', 'e', HASH, '{"recovery": "at_most_once", "provider_key": "p"}')`,
	"select pawl_v1.step_end('s', 'k1', 'e', EFFECT, 'ambiguous', null, '{\"error\": \"e\"}')",
	"select pawl_v1.step_settle('s', 'k1', 'e', STEP, 'executed', 'a', 'why')",
	`select pawl_v1.step_begin('s', 'k3', 'e', HASH, '{"recovery": "at_most_once", "provider_key": "p3"}')`,
	"select pawl_v1.step_end('s', 'k3', 'e', EFFECT, 'refused')",
	"select pawl_v1.step_again('s', 'k3', 'e', STEP, 'a', 'why')",
	"select pawl_v1.step_purge()",
	"select pawl_v1.outbox_append('default', 'T', 'order', '17', 'x', '{\"scope\": \"s\", \"key\": \"k\", \"headers\": {\"a\": \"b\"}}')",
	"select pawl_v1.outbox_append_many('{default}', '{T}', '{order}', '{17}', array['x']::pg_catalog.bytea[], '{s}', '{k2}')",
	"select pawl_v1.fence_accept('r', 1), pawl_v1.fence_purge(0), pawl_v1.try_lock('n', 'k')",

	`select pawl_v1.schedule_put('sch', 'q', 'k', 'x', '{"every_ms": 1000, "first_at": "2026-01-01T00:00:00Z"}')`,
	"select t.outcome from pawl.schedule as s, lateral pawl_v1.schedule_tick(s.name::pg_catalog.text, s.fence) as t",
	"select pawl_v1.schedule_pause('sch', 'a', 'why'), pawl_v1.schedule_resume('sch', 'a', 'why'), pawl_v1.schedule_run_now('sch', 'a', 'why')",

	"select pawl_v1.stale_classify()",
	"select pawl_v1.explain('m5'), pawl_v1.explain('k1', '{\"scope\": \"s\"}')",
	"select pawl_v1.purge_count('inbox', '{\"consumer\": \"c\", \"older_than_ms\": 1000}'), pawl_v1.purge_count('step'), pawl_v1.purge_count('replay', '{\"older_than_ms\": 0}')",
	"select pawl_v1.purge_audit('inbox', 7, 'a', 'why', '{\"consumer\": \"c\", \"older_than_ms\": 1000}'), pawl_v1.purge_audit('step', null, 'a', 'why')",
	`select * from pawl_v1.gates; select * from pawl_v1.schedules; select * from pawl_v1.stale_commands; select * from pawl_v1.suppression_by_scope;
select * from pawl_v1.steps; select * from pawl_v1.dead_letters; select * from pawl_v1.jobs; select * from pawl_v1.lanes; select * from pawl_v1.hot_retries;
select * from pawl_v1.backlog; select * from pawl_v1.queues; select * from pawl_v1.archive; select * from pawl_v1.outbox_pending; select * from pawl_v1.outbox_events;
select * from pawl_v1.outbox_lag; select * from pawl_v1.outbox_heads`,
	"select pawl_v1.schedule_delete('sch', 'a', 'why')",
	"select pawl_v1.worker_leave(WORKER)",
}

// alone runs a statement in its own transaction, after the previous ones.
func alone(t *testing.T, conn *pgx.Conn, statement string) error {
	t.Helper()
	statement = strings.NewReplacer("HASH", `'\x`+strings.Repeat("ab", 32)+`'`,
		"JOB, FENCE", "JOB, (select j.fence from pawl.job as j order by j.id desc limit 1)",
		"COMMAND", "(select c.fence from pawl.command as c order by c.created_at desc limit 1)",
		"EFFECT", "(select c.fence from pawl.step_call as c order by c.fence desc limit 1)",
		"STEP", "(select e.fence from pawl.step as e order by e.fence desc limit 1)",
		"WORKER", "(select w.id from pawl.worker as w order by w.id desc limit 1)",
		"LANE", "(select l.id from pawl.lane as l order by l.id desc limit 1)").Replace(statement)
	statement = strings.ReplaceAll(statement, "JOB", "(select j.id from pawl.job as j order by j.id desc limit 1)")
	_, err := conn.Exec(t.Context(), statement, pgx.QueryExecModeSimpleProtocol)
	if err != nil {
		_, _ = conn.Exec(t.Context(), "rollback")
	}
	return err
}

const empty = `truncate pawl.inbox, pawl.delivery, pawl.job, pawl.job_key, pawl.command, pawl.step, pawl.step_call, pawl.sequence_gate, pawl.sequence_gate_held,
  pawl.lane, pawl.queue, pawl.schedule, pawl.worker, pawl.recall, pawl.fence, pawl.consumer, pawl.forgotten, pawl.rollup, pawl.stale_write`
