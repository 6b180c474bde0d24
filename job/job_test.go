package job_test

import (
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/contract"
	"github.com/pawl-go/pawl/internal/testbed/jobtest"
	"github.com/pawl-go/pawl/internal/testbed/patience"
	"github.com/pawl-go/pawl/job"
)

// A job enqueued in a transaction exists if and only if the transaction commits.
func TestEnqueue_FollowsItsTransaction(t *testing.T) {
	t.Parallel()
	b := setup(t)
	tx := b.begin()
	b.enqueueIn(tx, job.Request{Queue: "q", Kind: "k"})
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.wantCount("select count(*) from pawl.job", 0)
}

// A key is remembered after its job has finished: a later duplicate does not run again (trap T69).
func TestT69_KeyOutlivesTheJob(t *testing.T) {
	t.Parallel()
	b := setup(t)
	r := job.Request{Queue: "q", Kind: "k", Payload: []byte("a"), Key: "once"}
	first := b.enqueue(r)
	b.mustFinish(b.claim())
	again := b.enqueue(r)
	if !again.Duplicate || again.ID != first.ID {
		t.Errorf("got %+v, want a duplicate of %d", again, first.ID)
	}
	r.Payload = []byte("b")
	if _, err := job.Enqueue(t.Context(), b.pool, r); !errors.Is(err, pawl.ErrKeyReused) {
		t.Errorf("another payload under the key: %v", err)
	}
	b.wantCount("select count(*) from pawl.job", 0)
}

// A duplicate must not refer to a job whose transaction then rolls back (trap T70).
func TestT70_LoserWaitsForTheWinnersFate(t *testing.T) {
	t.Parallel()
	b := setup(t)
	winner := b.begin()
	b.enqueueIn(winner, job.Request{Queue: "q", Kind: "k", Key: "once"})
	got := make(chan job.Enqueued)
	go func() {
		e, err := job.Enqueue(t.Context(), b.pool, job.Request{Queue: "q", Kind: "k", Key: "once"})
		if err != nil {
			t.Error(err)
		}
		got <- e
	}()
	patience.Blocked(b, b.pool, 1, "%job_enqueue%")
	if err := winner.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if e := <-got; e.Duplicate {
		t.Errorf("the loser got a job that was rolled back: %+v", e)
	}
	b.wantCount("select count(*) from pawl.job", 1)
}

// The fingerprints of Go and of the SQL default are equal, so that both clients can use one key.
func TestEnqueue_GoAndSQLFingerprintAlike(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec("select pawl_v1.job_enqueue('q', 'kind', 'payload', '{\"key\": \"x\"}')")
	e := b.enqueue(job.Request{Queue: "q", Kind: "kind", Payload: []byte("payload"), Key: "x",
		Fingerprint: pawl.FingerprintOf([]byte("kind"), []byte("payload"))})
	if !e.Duplicate {
		t.Error("not recognised")
	}
}

func TestClaim_TakesDueJobsByPriorityThenAge(t *testing.T) {
	t.Parallel()
	b := setup(t)
	low := b.enqueue(job.Request{Queue: "q", Kind: "k", Priority: 4})
	b.enqueue(job.Request{Queue: "q", Kind: "k", StartIn: time.Hour, Priority: 1})
	b.enqueue(job.Request{Queue: "other", Kind: "k", Priority: 1})
	high := b.enqueue(job.Request{Queue: "q", Kind: "k", Priority: 1})
	older := b.enqueue(job.Request{Queue: "q", Kind: "k"})
	newer := b.enqueue(job.Request{Queue: "q", Kind: "k"})
	for i, want := range []job.Enqueued{high, older, newer, low} {
		if got := b.claim(); got.ID != want.ID {
			t.Errorf("claim %d: job %d, want %d", i, got.ID, want.ID)
		}
	}
	if rest := b.claimUpTo(10); len(rest) != 0 {
		t.Errorf("claimed %v before their time", rest)
	}
}

// The fence grows at every claim, independently of the attempt count (trap T59).
func TestT59_FenceIsNotTheAttemptNumber(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.enqueue(job.Request{Queue: "q", Kind: "k"})
	var last job.Job
	for n := range int64(5) {
		last = b.claim()
		if last.Fence != n+1 || last.Attempt != 1 {
			t.Fatalf("round %d: fence %d, attempt %d", n, last.Fence, last.Attempt)
		}
		if released, err := last.Release(t.Context(), b.pool); !released || err != nil {
			t.Fatal(released, err)
		}
	}
	if released, err := last.Release(t.Context(), b.pool); released || err != nil {
		t.Errorf("released twice: %v, %v", released, err)
	}
}

// A worker paused past its lease is rejected after another has claimed the job (traps T57, T58).
func TestT57_T58_LateHolderIsRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.enqueue(job.Request{Queue: "q", Kind: "k"})
	late := b.claim()
	b.dieAndSweep()
	b.exec("update pawl.job set available_at = now()")
	current := b.claim()

	for name, write := range map[string]func(pgx.Tx) error{
		"hold":   func(tx pgx.Tx) error { return late.Hold(t.Context(), tx) },
		"finish": func(tx pgx.Tx) error { return late.Finish(t.Context(), tx) },
		"fail": func(tx pgx.Tx) error {
			_, err := late.Fail(t.Context(), tx, errors.New("x"), job.Backoff{})
			return err
		},
	} {
		tx := b.begin()
		if _, err := tx.Exec(t.Context(), "create table zombie (n int)"); err != nil {
			t.Fatal(err)
		}
		if err := write(tx); !errors.Is(err, pawl.ErrFenceLost) {
			t.Errorf("%s: %v, want ErrFenceLost", name, err)
		}
		if err := tx.Commit(t.Context()); !errors.Is(err, pgx.ErrTxCommitRollback) {
			t.Errorf("%s: the zombie's rows committed: %v", name, err)
		}
	}
	if released, err := late.Release(t.Context(), b.pool); released || err != nil {
		t.Errorf("the zombie released its successor's job: %v, %v", released, err)
	}
	b.mustFinish(current)
}

// The detail of the error is the job's status.
func TestFinish_RefusalTellsWhy(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.enqueue(job.Request{Queue: "q", Kind: "k"})
	j := b.claim()
	b.mustFinish(j)
	b.wantDetail(j.Finish(t.Context(), b.begin()), "absent")

	b.enqueue(job.Request{Queue: "q", Kind: "k", MaxAttempts: 1})
	j = b.claim()
	if failed, err := j.Fail(t.Context(), b.pool, errors.New("x"), job.Backoff{}); err != nil || failed.Status != "dead_letter" {
		t.Fatal(failed, err)
	}
	b.wantDetail(j.Finish(t.Context(), b.begin()), "dead_letter")
}

// A dead letter keeps its payload and its last errors, up to a bound.
func TestFail_DeadLetterKeepsPayloadAndErrors(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.enqueue(job.Request{Queue: "q", Kind: "k", Payload: []byte("payload"), MaxAttempts: 12})
	for n := range 12 {
		b.exec("update pawl.job set available_at = now()")
		failed, err := b.claim().Fail(t.Context(), b.pool, job.RetryAfter(time.Hour, errors.New("boom")), job.Backoff{})
		if err != nil || failed.Status == "dead_letter" != (n == 11) {
			t.Fatalf("failure %d: %+v, %v", n+1, failed, err)
		}
	}
	var payload string
	var errorsKept, lastAttempt int
	err := b.pool.QueryRow(t.Context(), `select d.payload_text, jsonb_array_length(d.last_errors), (d.last_errors -> -1 ->> 'attempt')::int
  from pawl_v1.dead_letters as d`).Scan(&payload, &errorsKept, &lastAttempt)
	if err != nil || payload != "payload" || errorsKept != 10 || lastAttempt != 12 {
		t.Errorf("payload %q, %d errors, last of attempt %d, %v", payload, errorsKept, lastAttempt, err)
	}
}

// Sweeps requeue the jobs of a dead worker once, and leave finished jobs alone (trap T60).
func TestT60_SweepTouchesOnlyTheDeadWorkersJobs(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.enqueue(job.Request{Queue: "q", Kind: "k"})
	finished := b.claim()
	b.enqueue(job.Request{Queue: "q", Kind: "k"})
	orphan := b.claim()
	b.mustFinish(finished)
	b.dieAndSweep()
	b.sweep()
	b.wantCount("select count(*) from pawl.job", 1)
	b.wantCount("select crashes from pawl.job", 1)
	b.wantCount("select count(*) from pawl.worker", 1) // the successor
	if _, err := orphan.Fail(t.Context(), b.pool, errors.New("x"), job.Backoff{}); !errors.Is(err, pawl.ErrFenceLost) {
		t.Errorf("the dead worker could still fail its job: %v", err)
	}
}

// The sweep skips a job held by an open transaction, and requeues it after that has ended.
func TestSweep_LeavesHeldJobsAlone(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.enqueue(job.Request{Queue: "q", Kind: "k"})
	j := b.claim()
	tx := b.begin()
	if err := j.Hold(t.Context(), tx); err != nil {
		t.Fatal(err)
	}
	b.dieAndSweep()
	b.wantCount("select count(*) from pawl.job where status = 'processing'", 1)
	if err := j.Finish(t.Context(), tx); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.sweep()
	b.wantCount("select count(*) from pawl.job", 0)
}

// A sweep never dead-letters kinds that its worker does not know (trap T61).
func TestT61_UnknownKindsAreNeverDeadLettered(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.enqueue(job.Request{Queue: "q", Kind: "of another version", MaxAttempts: 1})
	for range 3 {
		b.exec("update pawl.job set available_at = now(), crashes = 99")
		b.claim()
		b.dieAndSweep()
	}
	b.wantCount("select count(*) from pawl.job where status = 'pending'", 1)
}

// A worker without its lease cannot claim.
func TestClaim_NeedsALease(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.enqueue(job.Request{Queue: "q", Kind: "k"})
	b.exec("update pawl.worker set seen_at = now() - lease * 2")
	if _, err := jobtest.Claim(t.Context(), b.pool, "q", b.worker, 1); !errors.Is(err, pawl.ErrFenceLost) {
		t.Errorf("got %v, want ErrFenceLost", err)
	}
}

// One poison job among others becomes one dead letter, and the others succeed. Its process dies
// once with other jobs, then alone as often as a suspect may.
func TestSweep_PoisonTakesNobodyWithIt(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const jobs = 500
	for n := range jobs {
		kind := "good"
		if n == 250 {
			kind = "poison"
		}
		b.enqueue(job.Request{Queue: "q", Kind: kind})
	}
	for deaths := 0; ; {
		b.exec("update pawl.job set available_at = now() where status = 'pending'")
		batch := b.claimUpTo(100)
		if len(batch) == 0 {
			if deaths != 5 { // once with other jobs, four times alone
				t.Errorf("the process died %d times, want 5", deaths)
			}
			break
		}
		for _, j := range batch {
			if j.Crashes > 0 && len(batch) > 1 {
				t.Fatalf("suspect %d came in a batch of %d", j.ID, len(batch))
			}
			if j.Crashes > 0 {
				outcome, err := contract.WorkerIsolate(t.Context(), b.pool, b.worker, j.ID, j.Fence, true)
				b.must(err)
				if outcome != "alone" {
					t.Fatalf("suspect %d is not alone: %s", j.ID, outcome)
				}
			}
		}
		dead := false
		for _, j := range batch {
			if j.Kind == "poison" {
				dead = true
				break
			}
			b.mustFinish(j)
		}
		if dead {
			deaths++
			b.dieAndSweep("good", "poison")
		}
	}
	b.wantCount("select count(*) from pawl_v1.dead_letters where kind = 'poison'", 1)
	b.wantCount("select count(*) from pawl.job", 1)
}

// Headers that Go cannot read are rejected: they would fail every batch of the job.
func TestEnqueue_RefusesHeadersThatAreNoObject(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for headers, want := range map[string]pawl.Code{`{"a": 1}`: "", `null`: "", `[1]`: "P4004", `"x"`: "P4004", `1`: "P4004"} {
		_, err := b.pool.Exec(t.Context(), `select pawl_v1.job_enqueue('q', 'k', '', '{"headers": `+headers+`}')`)
		if pawl.CodeOf(err) != want {
			t.Errorf("headers %s: %v, want %q", headers, err, want)
		}
	}
	if jobs := b.claimUpTo(10); len(jobs) != 2 {
		t.Errorf("claimed %d jobs, want 2", len(jobs))
	}
}

// A job of an unknown kind may crash forever. Its counters do not overflow.
func TestSweep_CountersDoNotOverflow(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.enqueue(job.Request{Queue: "q", Kind: "of another version"})
	b.exec("update pawl.job set attempts = 32767, crashes = 32767")
	b.claim()
	b.dieAndSweep()
	b.wantCount("select count(*) from pawl.job where status = 'pending' and attempts > 0 and crashes > 0", 1)
}

// Every wait is one that the database accepts. Otherwise a failed attempt could not be recorded.
func TestBackoff_StaysWithinBounds(t *testing.T) {
	t.Parallel()
	for _, b := range []job.Backoff{{}, {Base: time.Hour, Max: 100 * 365 * 24 * time.Hour}, {Base: 1 << 62, Max: 1 << 62}} {
		for n := range 100 {
			if wait := b.After(n + 1); wait <= 0 || wait > 365*24*time.Hour {
				t.Errorf("%+v waits %v after try %d", b, wait, n+1)
			}
		}
	}
}
