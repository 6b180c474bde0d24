//go:build proof

package schematest_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/pawltest"
)

// hot are the statements whose plans must not depend on statistics or dead rows. Each has the
// indexes of pawl.job, pawl.job_key, pawl.inbox and pawl.command that it may use. The first index
// is required.
//
// Jobs up to 50 are held by worker 1 and jobs up to 100 under their own leases, all with fence 1.
// Jobs from 101 on are pending. Jobs -1 to -1000 are the held heads of lanes "1" to "1000", and
// behind each a hundred jobs wait. In the last hundred lanes a process died in a batch.
//
// Commands up to 50 are held under an expired lease, with fences equal to their keys, as are the
// last 100,000. The others have succeeded.
var hot = []struct {
	call    string
	indexes []string
}{
	{"pawl_v1.job_claim('q', 1, 25)", []string{"job_claim", "job_pkey"}},
	{"pawl_v1.job_claim('q', 1, 500)", []string{"job_claim", "job_pkey"}},
	{"pawl_v1.job_claim('q', 1, 25, '{\"kinds\": [\"k\"]}')", []string{"job_claim", "job_pkey"}},
	{"pawl_v1.job_claim('q', null, 25)", []string{"job_claim", "job_pkey"}},
	{drainQ + "pawl_v1.job_claim('q', 1, 25)", []string{"job_begun", "job_pkey"}},
	{"pawl_v1.job_claim_id(107, 1)", []string{"job_pkey"}},
	{"pawl_v1.job_claim_id(107, null)", []string{"job_pkey"}},
	{"pawl_v1.job_renew(60, 1)", []string{"job_pkey"}},
	{"pawl_v1.job_hold(7, 1)", []string{"job_pkey"}},
	{"pawl_v1.job_hold_many(array(select generate_series(1, 40)), array_fill(1::bigint, '{40}'))", []string{"job_pkey"}},
	{"pawl_v1.job_finish(7, 1)", []string{"job_pkey"}},
	{"pawl_v1.job_finish_many(array(select generate_series(1, 40)), array_fill(1::bigint, '{40}'))", []string{"job_pkey"}},
	{"pawl_v1.job_finish_many(array(select generate_series(1, 400)), array_fill(1::bigint, '{400}'), '{\"skip_stale\": true}')", []string{"job_pkey"}},
	{"pawl_v1.job_exchange(array(select generate_series(1, 400)), array_fill(1::bigint, '{400}'), 'q', 1, 0)", []string{"job_pkey", "job_claim"}},
	{keepQ + "pawl_v1.job_finish(7, 1)", []string{"job_pkey"}},
	{keepQ + "pawl_v1.job_finish_many(array(select generate_series(1, 40)), array_fill(1::bigint, '{40}'))", []string{"job_pkey"}},
	{keepQ + "pawl_v1.job_finish_many(array(select generate_series(-40, -1)), array_fill(1::bigint, '{40}'))", []string{"job_pkey", "job_wait", "job_head"}},
	{"pawl_v1.job_fail(7, 1, '{}')", []string{"job_pkey"}},
	{"pawl_v1.job_release(7, 1)", []string{"job_pkey"}},
	{"pawl_v1.inbox_claim('c', 'fresh', sha256(''))", []string{"inbox_pkey"}},
	{"pawl_v1.inbox_claim('c', '7', sha256(''))", []string{"inbox_pkey"}},
	{"pawl_v1.inbox_claim_many('c', '{7,fresh}', array[sha256(''), sha256('')])", []string{"inbox_pkey"}},
	{"pawl_v1.inbox_claim_many('c', array(select n::text from generate_series(1, 900) as n), array_fill(sha256(''), '{900}'))", []string{"inbox_pkey"}},
	{"pawl_v1.inbox_settle('c', 'stored', 7)", []string{"inbox_pkey"}},
	{"pawl_v1.inbox_reserve('c', 'stored', sha256(''), 8)", []string{"inbox_pkey", "job_pkey"}},
	{"pawl_v1.inbox_unreserve('c', 'stored', 7)", []string{"inbox_pkey"}},
	{"pawl_v1.job_enqueue('q', 'k', '', '{\"key\": \"fresh\"}')", []string{"job_key_pkey"}},
	{"pawl_v1.job_enqueue('q', 'k', '', '{\"key\": \"7\"}')", []string{"job_key_pkey"}},
	{"pawl_v1.job_enqueue_many('{q,q}', '{k,k}', array[''::bytea, ''], '{fresh,7}')", []string{"job_key_pkey"}},
	{"pawl_v1.job_enqueue_many(array_fill('q'::text, '{900}'), array_fill('k'::text, '{900}'), array_fill(''::bytea, '{900}'), " +
		"array(select n::text from generate_series(1, 900) as n))", []string{"job_key_pkey"}},
	{"pawl_v1.job_finish(-7, 1)", []string{"job_pkey", "job_wait", "job_head"}},
	{"pawl_v1.job_finish_many(array(select generate_series(-40, -1)), array_fill(1::bigint, '{40}'))", []string{"job_pkey", "job_wait", "job_head"}},
	{"pawl_v1.job_fail(-7, 1, '{}', '{\"final\": true}')", []string{"job_pkey"}},
	{"pawl_v1.job_enqueue('q', 'k', '', '{\"lane\": \"7\"}')", []string{"job_head"}},
	{"pawl_v1.job_enqueue('q', 'k', '', '{\"lane\": \"fresh\"}')", []string{"job_wait", "job_head"}},
	{"pawl_v1.job_enqueue_many('{q,q}', '{k,k}', array[''::bytea, ''], p_options => '{\"lanes\": [\"7\", \"fresh\"]}')", []string{"job_wait", "job_head"}},
	{"pawl_v1.lane_promote(7)", []string{"job_head"}},
	{"pawl_v1.lane_batch('{7}', '{1}')", []string{"job_pkey"}},
	{"pawl_v1.lane_batch('{-7}', '{1}')", []string{"job_wait", "job_pkey"}},
	{"pawl_v1.lane_batch(array(select generate_series(-400, -1)), array_fill(1::bigint, '{400}'), 50)", []string{"job_wait", "job_pkey"}},
	{"pawl_v1.lane_finish('{-7}', '{1}', '{-1007,-2007}')", []string{"job_pkey", "job_wait", "job_head"}},
	// One head is stale, and two members wait in no lane.
	{"pawl_v1.lane_finish('{-7,-8}', '{1,2}', '{-1007,8,9}')", []string{"job_pkey", "job_wait", "job_head"}},
	{manyRuns, []string{"job_pkey", "job_wait", "job_head"}},
	{keepQ + manyRuns, []string{"job_pkey", "job_wait", "job_head"}},
	{"pawl_v1.lane_finish(array(select generate_series(-1000, -901)), array_fill(1::bigint, '{100}'), '{}')", []string{"job_pkey", "job_wait", "job_head"}},
	{"pawl_v1.lane_sweep()", []string{"job_wait", "job_head"}},
	{"pawl_v1.lane_purge()", []string{"job_head"}},
	{"pawl_v1.lane_unblock('q', '7', 'somebody', 'a reason')", []string{"job_head"}},
	{"pawl_v1.job_sweep('{k}')", []string{"job_held", "job_pkey"}},
	{"pawl_v1.command_open('s', 'fresh', sha256(''))", []string{"command_pkey"}},
	{"pawl_v1.command_open('s', '77', sha256(''))", []string{"command_pkey"}}, // replay
	{"x.outcome from pawl_v1.command_open('s', 'fresh', sha256('')) as o, pawl_v1.command_close('s', 'fresh', sha256(''), o.fence, o.xact) as x", []string{"command_pkey"}},
	{"pawl_v1.command_claim('s', 'fresh', sha256(''))", []string{"command_pkey"}},
	{"pawl_v1.command_claim('s', '77', sha256(''))", []string{"command_pkey"}}, // replay
	// A takeover.
	{"pawl_v1.command_claim('s', '7', sha256(''), '{\"repeatable\": true}')", []string{"command_pkey"}},
	{"pawl_v1.command_renew('s', '7', 7)", []string{"command_pkey"}},
	{"pawl_v1.command_hold('s', '7', 7)", []string{"command_pkey"}},
	{"pawl_v1.command_succeed('s', '7', 7)", []string{"command_pkey"}},
	{"pawl_v1.command_fail('s', '7', 7, sha256(''), '{}')", []string{"command_pkey"}},
	{"pawl_v1.worker_leave(1)", []string{"job_held", "job_pkey"}},
}

// keepQ enables the queue's archive in the statement of the call.
const keepQ = `pawl_v1.queue_set('q', '{"archive": true}', 'somebody', 'a reason'), `

// manyRuns finishes 400 heads, each with the next job of its lane.
const manyRuns = "pawl_v1.lane_finish(array(select generate_series(-400, -1)), array_fill(1::bigint, '{400}'), array(select generate_series(-1400, -1001)))"

// drainQ drains the queue in the statement of the call. None of these jobs was begun.
const drainQ = `pawl_v1.queue_set('q', '{"mode": "draining"}', 'somebody', 'a reason'), `

// scans counts the session's scans of the four tables and of each of their indexes.
const scans = `
select c.relname, pg_stat_get_xact_numscans(c.oid)
  from pg_class as c
 where c.relnamespace = 'pawl'::regnamespace
   and (c.relname in ('job', 'job_key', 'inbox', 'command') or c.oid in (
         select i.indexrelid from pg_index as i where i.indrelid in ('pawl.job'::regclass, 'pawl.job_key'::regclass, 'pawl.inbox'::regclass, 'pawl.command'::regclass)))`

// Every hot statement uses its index. That holds with statistics of an empty table and of a full
// one, and with a million dead rows under a snapshot that keeps them. The server's own counters
// show the scanned indexes, without an extension or superuser.
func TestHotStatementsUseTheirIndex(t *testing.T) {
	t.Parallel()
	url := pawltest.URL(t)
	conn := connect(t, url)
	exec := func(script string) {
		t.Helper()
		if _, err := conn.Exec(t.Context(), script); err != nil {
			t.Fatal(err)
		}
	}
	const analyze = "analyze pawl.job, pawl.job_key, pawl.inbox, pawl.command, pawl.worker"
	exec("set synchronous_commit = off")
	exec(analyze)
	exec(fixed + rowsFrom(1, 20_000))
	checkPlans(t, url, "statistics of an empty table")
	exec(analyze)
	// Few enough for a join to read all of them.
	checkPlans(t, url, "statistics of twenty thousand rows")
	exec(rowsFrom(20_001, 1_000_000))
	exec(analyze)
	checkPlans(t, url, "statistics of a million rows")

	pin := connect(t, url)
	tx, err := pin.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if _, err := tx.Exec(t.Context(), "select from pawl.job limit 1"); err != nil {
		t.Fatal(err)
	}
	exec(dead)
	checkPlans(t, url, "dead rows, statistics of before")
	exec(analyze)
	checkPlans(t, url, "dead rows, statistics of after")
}

const fixed = `
insert into pawl.worker (name, lease) values ('w', '1 hour');
insert into pawl.inbox (consumer, key, hash, job_id) values ('c', 'stored', sha256(''), 7);
insert into pawl.lane (queue, name) select 'q', n from generate_series(1, 1000) as n;
select setval('pawl.fence_seq', 1000000);
insert into pawl.job (id, queue, kind, payload, status, claimed_by, lease_expires_at, fence, attempts, batch_end, lane_id, position, lane_head)
overriding system value
select -n, 'q', 'k', '', case when n <= 1000 then 'processing' else 'waiting' end, case when n <= 1000 then 0 end,
       case when n <= 1000 then now() + interval '1 hour' end, 1, case when n <= 1000 then 1 else 0 end, case when n between 901 and 1000 then -5000 end,
       1 + (n - 1) % 1000, n, n <= 1000
  from generate_series(1, 101000) as n;`

// rowsFrom inserts the rows of a range into each table.
func rowsFrom(from, to int) string {
	return fmt.Sprintf(`
insert into pawl.job (queue, kind, payload, priority, status, claimed_by, lease_expires_at, fence)
select 'q', 'k', '', 1 + n %% 4, case when n <= 100 then 'processing' else 'pending' end,
       case when n <= 50 then 1 when n <= 100 then 0 end, case when n between 51 and 100 then now() - interval '1 minute' end, 1
  from generate_series(%[1]d, %[2]d) as n;
insert into pawl.job_key (queue, key, hash, job_id, expires_at)
select 'q', n, h.hash, n, now() + interval '1 day' from generate_series(%[1]d, %[2]d) as n, pawl_v1._job_hash('k', '') as h (hash);
insert into pawl.inbox (consumer, key, hash, processed_at) select 'c', n, sha256(''), now() from generate_series(%[1]d, %[2]d) as n;
insert into pawl.command (scope, key, hash, fence, status, lease_expires_at, expires_at)
select 's', n, sha256(''), n, h.status, case h.status when 'processing' then now() - interval '1 minute' end, now() + interval '1 day'
  from generate_series(%[1]d, %[2]d) as n, lateral (select case when n <= 50 or n > 900000 then 'processing' else 'succeeded' end) as h (status)`,
		from, to)
}

// dead makes most of a million rows dead. Jobs are updated first, so that every index contains dead
// entries. Some thousand rows stay. If ANALYZE found only two or three rows among a million dead
// ones, the planner would expect to read the whole index and prefer the table.
const dead = `
update pawl.job set status = 'processing', claimed_by = 2, fence = fence + 1 where id > 4000;
delete from pawl.job where id > 4000;
delete from pawl.job where id < -3000;
delete from pawl.job_key where job_id > 1000;
delete from pawl.inbox where processed_at is not null and key::int > 1000;
update pawl.command set status = 'succeeded', lease_expires_at = null where key::int > 900000;
delete from pawl.command where key::int > 4000`

func checkPlans(t *testing.T, url, when string) {
	t.Helper()
	for _, mode := range []string{"force_custom_plan", "force_generic_plan"} {
		conn := connect(t, url)
		if _, err := conn.Exec(t.Context(), "set plan_cache_mode = "+mode); err != nil {
			t.Fatal(err)
		}
		for _, h := range hot {
			used, err := indexesOf(t.Context(), conn, h.call)
			if err != nil {
				t.Fatalf("%s: %v", h.call, err)
			}
			for name := range used {
				if !slices.Contains(h.indexes, name) {
					t.Errorf("%s, %s: %s scanned %v, want %v", when, mode, h.call, used, h.indexes)
				}
			}
			// Scanned exactly once, by the statement that the index is for.
			if used[h.indexes[0]] == 0 || h.indexes[0] == "job_claim" && used["job_claim"] != 1 {
				t.Errorf("%s, %s: %s scanned %v, want %s", when, mode, h.call, used, h.indexes[0])
			}
		}
	}
}

// indexesOf runs a call, rolls it back, and returns the scans per index. A table's own name stands
// for sequential scans.
func indexesOf(ctx context.Context, conn *pgx.Conn, call string) (used map[string]int64, err error) {
	tx, err := conn.Begin(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = tx.Rollback(ctx) }()
	// The sweep and the release need a dead worker, the claim a live one.
	lease := "1 hour"
	if call == "pawl_v1.job_sweep('{k}')" {
		lease = "1 second"
	}
	if _, err := tx.Exec(ctx, fmt.Sprintf("update pawl.worker set seen_at = now() - interval '1 minute', lease = '%s'", lease)); err != nil {
		return nil, err
	}
	before, err := scanCounts(ctx, tx)
	if err != nil {
		return nil, err
	}
	if _, err := tx.Exec(ctx, "select "+call); err != nil {
		return nil, err
	}
	after, err := scanCounts(ctx, tx)
	used = map[string]int64{}
	for name, n := range after {
		if n > before[name] {
			used[name] = n - before[name]
		}
	}
	return used, err
}

func scanCounts(ctx context.Context, tx pgx.Tx) (map[string]int64, error) {
	rows, err := tx.Query(ctx, scans)
	if err != nil {
		return nil, err
	}
	counts := map[string]int64{}
	var name string
	var n int64
	_, err = pgx.ForEachRow(rows, []any{&name, &n}, func() error { counts[name] = n; return nil })
	return counts, err
}
