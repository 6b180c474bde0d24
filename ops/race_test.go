package ops_test

import (
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/delivery"
	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/ops"
)

// refused fails the test unless every call of the attempt is rejected and its rows roll back.
func (b *bed) refused(j job.Job, detail string) {
	b.Helper()
	for _, write := range []func(pgx.Tx) error{
		func(tx pgx.Tx) error { return j.Hold(b.Context(), tx) },
		func(tx pgx.Tx) error { return j.Finish(b.Context(), tx) },
		func(tx pgx.Tx) error {
			_, err := j.Fail(b.Context(), tx, errors.New("x"), job.Backoff{})
			return err
		},
	} {
		tx := b.begin()
		_, err := tx.Exec(b.Context(), "create table late (n int)")
		b.must(err)
		b.wantFenced(write(tx), detail)
		if err := tx.Commit(b.Context()); !errors.Is(err, pgx.ErrTxCommitRollback) {
			b.Errorf("the late rows committed: %v", err)
		}
	}
	if released, err := j.Release(b.Context(), b.pool); released || err != nil {
		b.Errorf("released: %v, %v", released, err)
	}
}

// After an operator's verb, a running attempt cannot commit. That holds for every verb.
func TestVerbs_FenceOutTheLiveHolder(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.enqueue()
	j := b.claim()
	b.do(ops.JobRef.Cancel, j.ID, ops.Cancelled)
	b.refused(j, "cancelled")
	b.do(ops.JobRef.Retry, j.ID, ops.Retried)
	b.refused(j, "superseded")
	successor := b.claim()
	if successor.Fence != j.Fence+3 { // two verbs and a claim
		t.Errorf("fence %d after %d", successor.Fence, j.Fence)
	}
	b.refused(j, "superseded")
	b.do(ops.JobRef.Cancel, j.ID, ops.Cancelled)
	b.do(ops.JobRef.Discard, j.ID, ops.Discarded)
	b.refused(successor, "absent")
}

// A worker that the sweep took for dead wakes up after an operator has retried its job.
func TestRetry_AfterSweepFencesOutTheSleeper(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.enqueue()
	j := b.claim()
	b.exec("update pawl.worker set seen_at = now() - lease * 2")
	b.exec("select pawl_v1.worker_isolate(j.claimed_by, j.id, j.fence) from pawl.job as j")
	b.exec("select pawl_v1.job_sweep('{k}', '{\"max_crashes\": 1}')")
	if r := b.do(ops.JobRef.Retry, j.ID, ops.Retried); r.Was != "dead_letter" {
		t.Errorf("was %s", r.Was)
	}
	b.refused(j, "superseded")
}

// The worker of a cancelled attempt is told once, with its next heartbeat.
func TestCancel_RecallsOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first, second := b.enqueue(), b.enqueue()
	b.claim()
	b.claim()
	b.do(ops.JobRef.Cancel, first, ops.Cancelled)
	b.do(ops.JobRef.Cancel, second, ops.Cancelled)
	if told := b.heartbeat(); len(told) != 2 || told[0] != first || told[1] != second {
		t.Errorf("recalled %v, want %d and %d", told, first, second)
	}
	if told := b.heartbeat(); len(told) != 0 {
		t.Errorf("recalled again: %v", told)
	}
}

// A recall must not end a later attempt, which started after an operator's retry, before the worker
// heard of the cancellation.
func TestRetry_RecallsNoLaterAttempt(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.enqueue()
	b.claim()
	b.do(ops.JobRef.Cancel, id, ops.Cancelled)
	b.do(ops.JobRef.Retry, id, ops.Retried)
	b.claim()
	if told := b.heartbeat(); len(told) != 0 {
		t.Errorf("recalled %v", told)
	}
}

// An attempt without a worker has no recall; its lease ends with it.
func TestCancel_OfARowLease(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.enqueue()
	b.exec("select pawl_v1.job_claim_id($1, null)", id)
	b.do(ops.JobRef.Cancel, id, ops.Cancelled)
	b.wantCount("select count(*) from pawl.job where status = 'cancelled' and claimed_by is null and lease_expires_at is null", 1)
	if told := b.heartbeat(); len(told) != 0 {
		t.Errorf("recalled %v", told)
	}
}

// If an attempt's transaction is open, it may be about to commit. The verb does not wait forever,
// changes nothing, and names the session to end.
func TestVerbs_LockedByAnOpenTransaction(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.enqueue()
	j := b.claim()
	tx := b.begin()
	b.must(j.Hold(t.Context(), tx))
	var pid string
	b.must(tx.QueryRow(t.Context(), "select pg_backend_pid()::text").Scan(&pid))
	for name, v := range map[string]verb{"retry": ops.JobRef.Retry, "cancel": ops.JobRef.Cancel, "discard": ops.JobRef.Discard} {
		_, err := v(ops.JobRef{ID: j.ID}, t.Context(), b.pool, by)
		if pawl.CodeOf(err) != "55P03" || !pawl.Retryable(err) || !strings.Contains(err.Error(), "pg_terminate_backend("+pid+")") {
			t.Errorf("%s: %v", name, err)
		}
	}
	b.wantCount("select count(*) from pawl.audit", 0)
	b.must(j.Finish(t.Context(), tx))
	b.must(tx.Commit(t.Context()))
	b.do(ops.JobRef.Cancel, j.ID, ops.Absent)
}

// If two operators change the same dead letter, one succeeds, and the other learns what the first
// did. Each change has an audit record.
func TestVerbs_TwoOperatorsAtOnce(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		verb       verb
		won, other ops.Outcome
	}{
		"retry":   {ops.JobRef.Retry, ops.Retried, ops.Refused},
		"discard": {ops.JobRef.Discard, ops.Discarded, ops.Absent},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.exec("alter function pawl_v1.job_" + name + " set lock_timeout = '10min'")
			id := b.in(ops.StatusDeadLetter)
			dead := ops.JobRef{ID: id, Statuses: []ops.Status{ops.StatusDeadLetter}}
			gate := b.begin() // both wait behind it
			_, err := gate.Exec(t.Context(), "select from pawl.job for update")
			b.must(err)
			var results [2]ops.Result
			var both sync.WaitGroup
			for i := range results {
				both.Go(func() {
					var err error
					if results[i], err = c.verb(dead, ctx, b.pool, by); err != nil {
						t.Error(err)
					}
				})
			}
			b.untilBlocked(2)
			b.must(gate.Rollback(t.Context()))
			both.Wait()
			outcomes := map[ops.Outcome]int{}
			for _, r := range results {
				outcomes[r.Outcome]++
			}
			if outcomes[c.won] != 1 || outcomes[c.other] != 1 {
				t.Errorf("%+v", results)
			}
			b.wantCount("select count(*) from pawl.audit", 1)
		})
	}
}

// A retried dead letter is the same delivery: the inbox does not drop it as a duplicate, and it is
// not applied twice (trap T38).
func TestT38_RetryIsNotADuplicate(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const take = "select c.outcome from pawl_v1.inbox_claim('orders', 'order-1', sha256('x')) as c"
	b.exec("select pawl_v1.inbox_claim('orders', 'order-1', sha256('x')), pawl_v1.inbox_store('orders', 'order-1', 'q', 'k', 'x', '{\"dead\": true}')")
	id := one[int64](b, "select j.id from pawl.job as j")
	b.do(ops.JobRef.Retry, id, ops.Retried)
	if got := one[string](b, take); got != "duplicate_ignored" {
		t.Errorf("a redelivery is %s", got)
	}
	j, tx := b.claim(), b.begin()
	b.must(j.Hold(t.Context(), tx))
	b.must(delivery.Settle(t.Context(), tx, "orders", "order-1", id))
	b.must(j.Finish(t.Context(), tx))
	b.must(tx.Commit(t.Context()))
	b.do(ops.JobRef.Retry, id, ops.Absent)
	b.wantCount("select count(*) from pawl.inbox where processed_at is not null", 1)
}
