package schematest_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/pawltest"
)

const (
	expireRows    = "update pawl.job set lease_expires_at = clock_timestamp() - interval '1 second' where claimed_by = 0"
	expireWorkers = "update pawl.worker set seen_at = clock_timestamp() - lease - interval '1 second'"
	sweepAll      = "select s.requeued, s.dead_lettered, s.workers from pawl_v1.job_sweep('{k,l}') as s"
	claimRow      = "select c.id, c.fence, c.attempts from pawl_v1.job_claim('q', null) as c"
)

// Only the requested kinds are claimed, each in its order. An empty list requests none.
func TestClaim_Kinds(t *testing.T) {
	t.Parallel()
	b := setup(t, `select pawl_v1.job_enqueue_many('{q,q,q,q}', '{k,l,m,k}', '{a,a,a,a}', p_priorities => '{null,null,null,1}')`)
	claim := func(kinds string) string {
		return "select c.id, c.kind from pawl_v1.job_claim('q', null, 25, '" + kinds + "') as c order by c.id"
	}
	b.is(claim(`{"kinds": []}`), "")
	b.is(claim(`{"kinds": ["other"]}`), "")
	b.is(claim(`{"kinds": ["k", "m"]}`), "1 k, 3 m, 4 k")
	b.is(claim(`{"kinds": null}`), "2 l")
	b.is(claim(`{"kinds": "k"}`), "P4004")
	b.is(claim(`{"kind": ["k"]}`), "P4004")
}

// A job without a worker has its own lease. A worker's job has none and accepts none.
func TestClaim_LeaseOfItsOwn(t *testing.T) {
	t.Parallel()
	b := setup(t, `select pawl_v1.worker_register('w'); select pawl_v1.job_enqueue_many('{q,q,q}', '{k,k,k}', '{a,a,a}')`)
	b.is(`select pawl_v1.job_claim('q', 1, 1, '{"lease_ms": 1000}')`, "P4004")
	b.is(`select pawl_v1.job_claim_id(1, 1, '{"lease_ms": 1000}')`, "P4004")
	b.is(`select c.id from pawl_v1.job_claim('q', 1, 1, '{"lease_ms": null}') as c`, "1")
	b.is(`select c.id from pawl_v1.job_claim('q', null, 1) as c`, "2")
	b.is(`select c.id from pawl_v1.job_claim('q', null, 1, '{"lease_ms": 43200000}') as c`, "3")
	b.is(`select j.claimed_by, round(extract(epoch from j.lease_expires_at - clock_timestamp()))::int from pawl.job as j order by j.id`,
		"1 <nil>, 0 30, 0 43200")
	for _, ms := range []string{"999", "43200001", "-1"} {
		b.is(`select pawl_v1.job_claim('q', null, 1, '{"lease_ms": `+ms+`}')`, "P4004")
	}
}

// After a row lease ends, the sweep requeues the job and counts a crash. Before that, the sweep
// leaves the job alone.
func TestClaim_RowLeaseRunsOut(t *testing.T) {
	t.Parallel()
	b := setup(t, `select pawl_v1.job_enqueue('q', 'k', '')`)
	b.is(claimRow, "1 1 1")
	b.is(sweepAll, "0 0 0")
	b.do(expireRows)
	b.is(sweepAll, "1 0 0")
	b.is(jobs, "1 pending <nil> 1 1 1")
	b.is("select j.last_errors -> 0 ->> 'code', j.lease_expires_at from pawl.job as j", "crash <nil>")
	// Late, however short the delay.
	b.is("select f.outcome from pawl_v1.job_finish(1, 1) as f", "P4020")
}

// A job whose lease ends repeatedly becomes a dead letter if the sweeper knows the kind (traps T42,
// T61).
func TestT42_RowLeasesCountCrashes(t *testing.T) {
	t.Parallel()
	b := setup(t, `select pawl_v1.job_enqueue_many('{q,q}', '{k,unknown}', '{a,a}')`)
	const due = "update pawl.job set available_at = clock_timestamp() where status = 'pending'"
	for range 5 { // the first time possibly with other jobs; then it must run alone
		b.do(due)
		b.do("select pawl_v1.job_claim_id(1, null)")
		b.do("select pawl_v1.job_claim_id(2, null)")
		b.do(expireRows)
		b.do(sweepAll)
	}
	b.is(jobs, "1 dead_letter <nil> 5 5 5, 2 pending <nil> 5 5 5")
}

// A renewal keeps the job. It is refused for a stale fence, a worker's job and an ended job.
func TestRenew(t *testing.T) {
	t.Parallel()
	b := setup(t, `select pawl_v1.worker_register('w'); select pawl_v1.job_enqueue_many('{q,q}', '{k,k}', '{a,a}'); select pawl_v1.job_claim('q', 1, 1)`)
	b.is(claimRow, "2 1 1")
	b.do(expireRows)
	b.is(`select r.outcome, round(extract(epoch from r.lease_expires_at - clock_timestamp()))::int from pawl_v1.job_renew(2, 1) as r`, "renewed 30")
	b.is(sweepAll, "0 0 0")
	b.is(`select round(extract(epoch from r.lease_expires_at - clock_timestamp()))::int from pawl_v1.job_renew(2, 1, '{"lease_ms": 60000}') as r`, "60")
	b.is(`select pawl_v1.job_renew(2, 1, '{"lease_ms": 1}')`, "P4004")
	b.is("select pawl_v1.job_renew(2, 2)", "P4020")
	b.is("select pawl_v1.job_renew(1, 1)", "P4020") // the worker's heartbeat renews this one
	b.is("select pawl_v1.job_renew(99, 1)", "P4020")
	b.do("select pawl_v1.job_finish(2, 1)")
	b.is("select pawl_v1.job_renew(2, 1)", "P4020")
}

// Worker id 0 belongs to no worker. Leaving as worker 0 releases none of the jobs that have their
// own lease.
func TestLeave_WorkerZeroReleasesNothing(t *testing.T) {
	t.Parallel()
	b := setup(t, `select pawl_v1.job_enqueue('q', 'k', '')`)
	b.is(claimRow, "1 1 1")
	b.is("select l.outcome, l.released from pawl_v1.worker_leave(0) as l", "busy 0")
	b.is("select l.outcome, l.released from pawl_v1.worker_leave(null) as l", "busy 0")
	b.is(jobs, "1 processing 0 1 1 0")
}

// All outcomes of a claim by id. Only claimed changes a row.
func TestClaimID_Outcomes(t *testing.T) {
	t.Parallel()
	b := setup(t, `select pawl_v1.worker_register('w'); insert into pawl.job (queue, kind, payload, headers, status, claimed_by, available_at, lane_id, position)
select 'q', 'k', 'a', '{"h": 1}', s.status, case when s.status = 'processing' then 1 end, clock_timestamp() + s.later * interval '1 hour',
       case s.status when 'waiting' then 1 end, case s.status when 'waiting' then 1 end
  from (values (1, 'pending', 0), (2, 'pending', 1), (3, 'processing', 0), (4, 'dead_letter', 0), (5, 'cancelled', 0), (6, 'unknown', 0),
               (7, 'waiting', 0), (8, 'pending', 0)) as s (n, status, later) order by s.n`)
	const claim = "select c.outcome, c.id, c.fence, c.queue, c.kind, convert_from(c.payload, 'UTF8'), c.headers ->> 'h', c.attempts, c.detail ->> 'status' from pawl_v1.job_claim_id("
	other := b.open("other")
	other.Do("begin; select from pawl.job where id = 8 for update")
	none := " <nil> <nil> <nil> <nil> <nil> <nil> <nil> "
	b.is(claim+"2, 1) as c", "not_due"+none+"pending")
	b.is(claim+"3, 1) as c", "busy"+none+"processing")
	b.is(claim+"4, 1) as c", "ended"+none+"dead_letter")
	b.is(claim+"5, 1) as c", "ended"+none+"cancelled")
	b.is(claim+"6, 1) as c", "ended"+none+"unknown")
	b.is(claim+"7, 1) as c", "waiting"+none+"waiting")
	b.is(claim+"8, 1) as c", "busy"+none+"<nil>")
	b.is(claim+"99, 1) as c", "absent"+none+"<nil>")
	b.is("select sum(j.fence)::int from pawl.job as j", "0")
	b.is("select c.available_at > clock_timestamp() + interval '59 minutes' from pawl_v1.job_claim_id(2, 1) as c", "true")

	b.is(claim+"1, 1) as c", "claimed 1 1 q k a 1 1 <nil>")
	b.is(claim+"1, 1) as c", "busy"+none+"processing")
	b.is(claim+`2, null, '{"early": true}') as c`, "claimed 2 1 q k a 1 1 <nil>")
	b.is("select j.claimed_by, j.lease_expires_at is null from pawl.job as j where j.id in (1, 2) order by j.id", "1 true, 0 false")
	b.is("select pawl_v1.job_claim_id(8, 77)", "P4020")
	other.Do("rollback")
}

// A job that was running when a process died is claimed alone. It waits behind healthy jobs of an
// earlier place, and is claimed alone before later ones.
func TestClaim_SuspectsComeAlone(t *testing.T) {
	t.Parallel()
	b := setup(t, "insert into pawl.job (queue, kind, payload, priority, crashes) values "+
		"('q', 'k', '', 2, 0), ('q', 'k', '', 2, 0), ('q', 'k', '', 2, 1), ('q', 'k', '', 2, 1), ('q', 'k', '', 2, 0), ('q', 'k', '', 3, 0)")
	const claim = "select c.id from pawl_v1.job_claim('q', null, 10) as c order by c.id"
	for _, want := range []string{"1, 2", "3", "4", "5, 6", ""} {
		b.is(claim, want)
	}
}

// A process that holds a suspect claims other jobs but no further suspects, also from a draining
// queue.
func TestClaim_LeavesSuspectsWhereTheyAre(t *testing.T) {
	t.Parallel()
	const some = "insert into pawl.job (queue, kind, payload, crashes, attempts) values ('q', 'k', '', 1, 1), ('q', 'k', '', 0, 1), ('q', 'k', '', 1, 1), ('q', 'k', '', 0, 1); "
	for _, given := range map[string]string{"running": "", "draining": "insert into pawl.queue (name, mode) values ('q', 'draining')"} {
		b := setup(t, some+given)
		const claim = "select c.id from pawl_v1.job_claim('q', null, 10, '{\"crashed\": %}') as c order by c.id"
		b.is(strings.Replace(claim, "%", "false", 1), "2, 4")
		b.is(strings.Replace(claim, "%", "false", 1), "")
		b.is(strings.Replace(claim, "%", "true", 1), "1")
		b.is(strings.Replace(claim, "%", "null", 1), "3")
	}
}

// A suspect of a lower priority is not claimed with more urgent jobs, and does not block them.
func TestClaim_SuspectOfALesserPriority(t *testing.T) {
	t.Parallel()
	b := setup(t, "insert into pawl.job (queue, kind, payload, priority, crashes) values "+
		"('q', 'k', '', 4, 0), ('q', 'k', '', 3, 1), ('q', 'k', '', 1, 0)")
	const claim = "select c.id from pawl_v1.job_claim('q', null, 10) as c order by c.id"
	for _, want := range []string{"3", "2", "1", ""} {
		b.is(claim, want)
	}
}

// A worker whose lease has ended claims nothing, even before the sweep notices.
func TestClaim_NeedsALivingLease(t *testing.T) {
	t.Parallel()
	b := setup(t, `select pawl_v1.worker_register('w'); select pawl_v1.job_enqueue('q', 'k', ''); `+expireWorkers)
	b.is("select pawl_v1.job_claim('q', 1)", "P4020")
	b.is("select pawl_v1.job_claim_id(1, 1)", "P4020")
	b.is("select h.outcome from pawl_v1.worker_heartbeat(1) as h", "alive")
	b.is("select c.id from pawl_v1.job_claim('q', 1) as c", "1")
}

// Between the end of a row lease and the sweep, an open transaction of the holder keeps the job
// (trap T6).
func TestT6_OpenTransactionOutlastsItsRowLease(t *testing.T) {
	t.Parallel()
	for _, level := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable} {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			b := setup(t, `select pawl_v1.job_enqueue('q', 'k', ''); select pawl_v1.job_claim('q', null); `+expireRows)
			holder := b.open("holder")
			holder.Do("begin isolation level " + string(level))
			b.same(holder.Do("select h.outcome from pawl_v1.job_hold(1, 1) as h"), "held")
			b.is(sweepAll, "0 0 0")
			b.same(holder.Do("select f.outcome from pawl_v1.job_finish(1, 1) as f"), "finished")
			b.same(holder.Do("commit"), "")
			b.is(jobs, "")
		})
	}
}

// While an old snapshot keeps dead index entries, a claim that starts at its mark does not read
// them.
func TestT23_AClaimPassesDeadEntriesBy(t *testing.T) {
	t.Parallel()
	url := pawltest.URL(t)
	conn, pin := connect(t, url), connect(t, url)
	tx, err := pin.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if _, err := tx.Exec(t.Context(), "select from pawl.job"); err != nil {
		t.Fatal(err)
	}
	exec1(t, url, `
insert into pawl.job (queue, kind, payload, available_at) select 'q', 'k', '', now() - interval '1 hour' from generate_series(1, 100000);
delete from pawl.job;
insert into pawl.job (queue, kind, payload) select 'q', 'k', '' from generate_series(1, 200)`)
	from := `{"since": [null, "` + time.Now().Add(-10*time.Minute).UTC().Format(time.RFC3339) + `"]}`
	without := pagesOf(t, conn, "pawl_v1.job_claim('q', null, 1)")
	with := pagesOf(t, conn, "pawl_v1.job_claim('q', null, 1, '"+from+"')")
	t.Logf("pages of a claim behind 100,000 dead entries: %d, and %d from a mark", without, with)
	if with*5 > without {
		t.Errorf("a claim from its mark reads %d pages, one from the beginning %d", with, without)
	}
}

// A claim with a mark skips jobs that are due before it, by priority. A claim without one takes
// all.
func TestClaim_Since(t *testing.T) {
	t.Parallel()
	b := setup(t, "select pawl_v1.worker_register('w'); "+
		"insert into pawl.job (queue, kind, payload, priority, available_at) "+
		"select 'q', 'k', '', 1 + n % 2, now() - n * interval '1 minute' from generate_series(1, 6) as n")
	b.is(`select count(*) from pawl_v1.job_claim('q', 1, 10, jsonb_build_object('since', jsonb_build_array(null, now() - interval '4 minutes')))`, "5")
	b.is("select string_agg((extract(epoch from now() - j.available_at) / 60)::int::text, ' ' order by j.id) from pawl.job as j where j.status = 'pending'", "5")
	b.is(`select pawl_v1.job_claim('q', 1, 10, '{"since": ["soon"]}')`, "22007")
	b.is("select count(*) from pawl_v1.job_claim('q', 1, 10)", "1")
}
