package schematest_test

import (
	"context"
	"fmt"
	"testing"
)

// fiveInLane has jobs 1 to 5 of one lane. Job 1 is held with fence 1 by worker 1, and the others
// wait behind it.
const fiveInLane = `select pawl_v1.worker_register('one'), pawl_v1.worker_register('two');
do $do$ begin for n in 1..5 loop perform pawl_v1.job_enqueue('q', 'k', 'payload', '{"lane": "l"}'); end loop; end $do$;
select c.id from pawl_v1.job_claim('q', 1, 10) as c`

const batchOfOne = "select b.id from pawl_v1.lane_batch('{1}', '{1}') as b"

// A batch contains the jobs that wait behind a head that the caller holds, in order, and at most
// the requested number.
func TestLaneBatch_IsWhatWaitsBehindAHead(t *testing.T) {
	t.Parallel()
	b := setup(t, fiveInLane)
	b.is(batchOfOne, "2, 3, 4, 5")
	b.is("select b.id, b.head, b.kind, convert_from(b.payload, 'UTF8'), b.detail ->> 'lane' from pawl_v1.lane_batch('{1}', '{1}', 1) as b", "2 1 k payload l")
	b.is("select b.id from pawl_v1.lane_batch('{1,99}', '{2,1}') as b", "") // neither is held
	b.is("select count(*) from pawl.job as j where j.status = 'waiting'", "4")
}

// A batch ends before a job that may not run now or has another kind.
func TestLaneBatch_EndsBeforeWhatDiffers(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]string{
		"not due":      "available_at = clock_timestamp() + interval '1 hour'",
		"tried before": "attempts = 1",
		"crashed":      "crashes = 1",
		"another kind": "kind = 'other'",
		"goes alone":   "batch_end = -9",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, fiveInLane)
			b.do("update pawl.job set " + change + " where id = 4")
			b.is(batchOfOne, "2, 3")
			b.do("update pawl.job set " + change + " where id = 2")
			b.is(batchOfOne, "")
		})
	}
}

// A head that was attempted before has no batch, and neither has one in a paused or draining queue,
// because its batch would be new work.
func TestLaneBatch_NoneForAHeadThatGoesAlone(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]string{
		"tried before": "update pawl.job set attempts = 2 where id = 1",
		"crashed":      "update pawl.job set crashes = 1 where id = 1",
		"behind one":   "update pawl.job set batch_end = -9 where id = 1",
		"paused":       "select pawl_v1.queue_set('q', '{\"mode\": \"paused\"}', 'ann', 'test')",
		"draining":     "select pawl_v1.queue_set('q', '{\"mode\": \"draining\"}', 'ann', 'test')",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, fiveInLane)
			b.do(change)
			b.is(batchOfOne, "")
		})
	}
}

// Finishing a head finishes the named members of its batch, and the next job of the lane becomes
// the head. A finish with a stale fence finishes nothing.
func TestLaneBatch_EndsWithItsHead(t *testing.T) {
	t.Parallel()
	b := setup(t, fiveInLane)
	b.is(batchOfOne, "2, 3, 4, 5")
	b.is("select f.id, f.outcome, f.members from pawl_v1.lane_finish('{1}', '{7}', '{2,3}') as f", "1 stale 0")
	b.is("select count(*) from pawl.job", "5")
	b.is("select f.id, f.outcome, f.members, f.detail ->> 'promoted' from pawl_v1.lane_finish('{1}', '{1}', '{2,3}') as f", "1 finished 2 1")
	b.is(inLane, "4 pending true, 5 waiting false")
	// A repeated call.
	b.is("select f.id, f.outcome, f.members from pawl_v1.lane_finish('{1}', '{1}', '{2,3}') as f", "1 stale 0")
}

// Members that an operator has ended are skipped and not counted.
func TestLaneBatch_SkipsMembersThatAnOperatorEnded(t *testing.T) {
	t.Parallel()
	b := setup(t, fiveInLane)
	b.is(batchOfOne, "2, 3, 4, 5")
	b.do("select pawl_v1.job_cancel(3, 'ann', 'test')")
	b.is("select f.outcome, f.members from pawl_v1.lane_finish('{1}', '{1}', '{2,3,4}') as f", "finished 2")
	b.is("select j.id, j.status from pawl.job as j order by j.id", "3 cancelled, 5 pending")
}

// A member of a batch counts as processing for a cancel, a reschedule or a discard.
func TestLaneBatch_ItsMembersAreProcessing(t *testing.T) {
	t.Parallel()
	b := setup(t, fiveInLane)
	const (
		cancel     = "select c.outcome, c.detail ->> 'status' from pawl_v1.job_cancel_own(%d) as c"
		reschedule = "select c.outcome, c.detail ->> 'status' from pawl_v1.job_reschedule(%d, 1000) as c"
		discard    = "select c.outcome, c.detail ->> 'status' from pawl_v1.job_discard(%d, 'ann', 'test') as c"
	)
	b.is(fmt.Sprintf(reschedule, 5), "rescheduled waiting") // so that it ends the batch
	b.is(batchOfOne, "2, 3, 4")
	b.is(fmt.Sprintf(reschedule, 2), "refused processing")
	b.is(fmt.Sprintf(discard, 2), "refused processing")
	b.is(fmt.Sprintf(cancel, 4), "cancelled processing")
	b.is("select c.outcome, c.detail ->> 'status' from pawl_v1.job_cancel(3, 'ann', 'test') as c", "cancelled processing")
	b.is(fmt.Sprintf(cancel, 5), "cancelled waiting")
	b.is("select f.outcome, f.members from pawl_v1.lane_finish('{1}', '{1}', '{2,3,4}') as f", "finished 1")
	b.is("select string_agg(j.id || ' ' || j.status, ', ' order by j.id) from pawl.job as j", "3 cancelled, 4 cancelled, 5 cancelled")
}

// A job behind a head without a batch is waiting.
func TestLaneBatch_WithoutOneTheyWait(t *testing.T) {
	t.Parallel()
	b := setup(t, fiveInLane)
	b.is("select c.outcome, c.detail ->> 'status' from pawl_v1.job_cancel_own(2) as c", "cancelled waiting")
	b.is(batchOfOne, "3, 4, 5")
	b.do("update pawl.job set status = 'pending', claimed_by = null where id = 1") // released
	b.is("select c.outcome, c.detail ->> 'status' from pawl_v1.job_cancel_own(3) as c", "cancelled waiting")
}

// Members of a queue with an archive are archived with one attempt each.
func TestLaneBatch_IsArchived(t *testing.T) {
	t.Parallel()
	b := setup(t, `select pawl_v1.queue_set('q', '{"archive": true}', 'ann', 'the auditors ask');`+fiveInLane)
	b.is(batchOfOne, "2, 3, 4, 5")
	b.do("select pawl_v1.lane_finish('{1}', '{1}', '{2,3}')")
	b.is("select a.id, a.attempts, a.lane from pawl_v1.archive as a order by a.id", "1 1 l, 2 1 l, 3 1 l")
}

// After a process died in a batch, the head runs alone, and so does each job up to the last of that
// batch. So the job that kills is found. Later jobs form batches again.
func TestLaneBatch_AfterACrashEachGoesAlone(t *testing.T) {
	t.Parallel()
	b := setup(t, fiveInLane)
	b.is("select b.id from pawl_v1.lane_batch('{1}', '{1}', 2) as b", "2, 3")
	b.do(oneIsDead)
	b.do("select pawl_v1.job_sweep('{k}')")
	for _, id := range []string{"1", "2", "3"} {
		b.do("update pawl.job set available_at = clock_timestamp() where id = " + id)
		b.is("select c.id from pawl_v1.job_claim('q', 2, 10) as c", id)
		b.is("select b.id from pawl.job as j, lateral pawl_v1.lane_batch(array[j.id], array[j.fence]) as b where j.id = "+id, "")
		b.is("select f.outcome from pawl.job as j, lateral pawl_v1.lane_finish(array[j.id], array[j.fence], '{}') as f where j.id = "+id, "finished")
	}
	b.is("select c.id from pawl_v1.job_claim('q', 2, 10) as c", "4")
	b.is("select b.id from pawl_v1.lane_batch('{4}', '{1}') as b", "5")
}

// fourLanes has jobs 1 to 12, alternating in the lanes a, b, c and d. Jobs 1 to 4 are held with
// fence 1. In lane c the next job is not due.
const fourLanes = `select pawl_v1.worker_register('one'), pawl_v1.worker_register('two');
do $do$ begin for n in 0..11 loop perform pawl_v1.job_enqueue('q', 'k', '', jsonb_build_object('lane', substr('abcd', 1 + n % 4, 1))); end loop; end $do$;
update pawl.job set available_at = clock_timestamp() + interval '1 hour' where id = 7;
select c.id from pawl_v1.job_claim('q', 1, 10) as c`

// A call for many heads returns the batch of each in order, and finishes each with its own members.
// Members of a head that is not held stay.
func TestLaneBatch_ManyHeadsAtOnce(t *testing.T) {
	t.Parallel()
	b := setup(t, fourLanes)
	// The fence of job 1 differs.
	const batches = "select b.head, b.id, b.detail ->> 'lane' from pawl_v1.lane_batch('{4,3,2,1}', '{1,1,1,7}') as b"
	b.is(batches, "2 6 b, 2 10 b, 4 8 d, 4 12 d")
	b.is("select j.id, j.batch_end = l.position from pawl.job as j left join pawl.job as l on l.id = j.id + 8 where j.batch_end is not null order by j.id", "2 true, 4 true")
	const finish = "select f.id, f.outcome, f.members, f.detail ->> 'promoted' from pawl_v1.lane_finish('{4,3,2,1}', '{1,1,1,7}', '{5,6,8,10}') as f"
	b.is(finish, "1 stale 0 2, 2 finished 2 <nil>, 3 finished 0 <nil>, 4 finished 1 <nil>")
	b.is("select j.id, j.status, j.lane_head from pawl.job as j order by j.id",
		"1 processing true, 5 waiting false, 7 pending true, 9 waiting false, 11 waiting false, 12 pending true")
	// A repeated call.
	b.is(finish, "1 stale 0 <nil>, 2 stale 0 <nil>, 3 stale 0 <nil>, 4 stale 0 <nil>")
}

// A member that another transaction has locked ends the batch of its own lane only.
func TestLaneBatch_ALockedMemberEndsItsOwnBatch(t *testing.T) {
	t.Parallel()
	b := setup(t, fourLanes)
	other := connect(t, b.url)
	tx, err := other.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if _, err := tx.Exec(t.Context(), "select from pawl.job where id = 6 for update"); err != nil {
		t.Fatal(err)
	}
	b.is("select f.id, f.outcome, f.members from pawl_v1.lane_finish('{2,4}', '{1,1}', '{6,8,10,12}') as f", "2 finished 0, 4 finished 2")
	b.is("select j.id from pawl.job as j where j.id in (6, 8, 10, 12) order by j.id", "6, 10")
}

// A job that is held without being the head of its lane is finished alone. The waiting jobs belong
// to another head.
func TestLaneBatch_NoTurnNoMembers(t *testing.T) {
	t.Parallel()
	b := setup(t, fiveInLane)
	b.do("update pawl.job set lane_head = false where id = 1")
	b.is("select f.id, f.outcome, f.members from pawl_v1.lane_finish('{1}', '{1}', '{2,3}') as f", "1 finished 0")
	b.is("select j.id from pawl.job as j order by j.id", "2, 3, 4, 5")
}

// Finishing heads archives those of a queue with an archive, with their batches, and deletes the
// others.
func TestLaneBatch_ArchivesByQueue(t *testing.T) {
	t.Parallel()
	b := setup(t, fiveInLane)
	b.do(`select pawl_v1.queue_set('kept', '{"archive": true}', 'ann', 'the auditors ask')`)
	b.do("do $do$ begin for n in 1..3 loop perform pawl_v1.job_enqueue('kept', 'k', '', '{\"lane\": \"m\"}'); end loop; end $do$")
	b.do("select pawl_v1.job_claim('kept', 1)")
	b.is("select f.id, f.outcome, f.members from pawl_v1.lane_finish('{1,6}', '{1,1}', '{2,3,7}') as f", "1 finished 2, 6 finished 1")
	b.is("select a.id, a.attempts, a.lane from pawl_v1.archive as a order by a.id", "6 1 m, 7 1 m")
	b.is("select j.id from pawl.job as j order by j.id", "4, 5, 8")
}

// lane_batch and lane_finish refuse invalid arguments.
func TestLaneBatch_Refuses(t *testing.T) {
	t.Parallel()
	b := setup(t, fiveInLane)
	for _, call := range []string{"lane_batch('{1}', '{1,2}')", "lane_batch('{1}', '{1}', 0)", "lane_batch('{1}', '{1}', 1001)", `lane_batch('{1}', '{1}', 5, '{"x": 1}')`,
		"lane_batch(array_fill(1::bigint, '{501}'), array_fill(1::bigint, '{501}'))", "lane_finish('{1}', '{1,2}', '{}')",
		"lane_finish('{1}', '{1}', array_fill(1::bigint, '{10001}'))", `lane_finish('{1}', '{1}', '{}', '{"x": 1}')`} {
		b.is("select pawl_v1."+call, "P4004")
	}
	b.is("select count(*) from pawl.job", "5")
}
