package ops_test

import (
	"errors"
	"testing"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/ops"
)

func (b *bed) list(f ops.Jobs) (ids []int64) {
	b.Helper()
	page, err := f.List(b.Context(), b.pool)
	b.must(err)
	for _, j := range page.Rows {
		ids = append(ids, j.ID)
	}
	return ids
}

// Each filter selects, and filters combine. Pages follow the ids without a gap or an overlap.
func TestList_FiltersAndPages(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(`insert into pawl.job (queue, kind, payload, status)
select 'q' || g % 2, 'k' || g % 3, 'x', (array['pending', 'dead_letter', 'cancelled', 'unknown'])[1 + g % 4]
  from generate_series(0, 119) as g`)
	for name, c := range map[string]struct {
		filter ops.Jobs
		want   int
	}{
		"default": {ops.Jobs{}, 50},
		"all":     {ops.Jobs{Limit: 1000}, 120},
		"queue":   {ops.Jobs{Queue: "q1", Limit: 1000}, 60},
		"kind":    {ops.Jobs{Kind: "k2", Limit: 1000}, 40},
		"both":    {ops.Jobs{Queue: "q1", Kind: "k2", Limit: 1000}, 20},
		"dead":    {ops.Jobs{Statuses: []ops.Status{ops.StatusDeadLetter, ops.StatusUnknown}, Limit: 1000}, 60},
		"none":    {ops.Jobs{Queue: "q", Limit: 1000}, 0},
		"quoted":  {ops.Jobs{Queue: "' or true --", Limit: 1000}, 0},
	} {
		if got := b.list(c.filter); len(got) != c.want {
			t.Errorf("%s: %d jobs, want %d", name, len(got), c.want)
		}
	}
	var walked []int64
	for f := (ops.Jobs{Queue: "q0", Limit: 6}); ; { // 60 jobs: the last page is full
		page, err := f.List(t.Context(), b.pool)
		b.must(err)
		for _, j := range page.Rows {
			walked = append(walked, j.ID)
		}
		if f.After = page.Next; f.After == "" {
			break
		}
	}
	if whole := b.list(ops.Jobs{Queue: "q0", Limit: 1000}); len(walked) != len(whole) || walked[30] != whole[30] {
		t.Errorf("walked %v, want %v", walked, whole)
	}
}

func TestList_RefusesBadFilters(t *testing.T) {
	t.Parallel()
	for _, f := range []ops.Jobs{{Limit: -1}, {Limit: 1001}, {Statuses: []ops.Status{"dead"}}, {Statuses: []ops.Status{ops.StatusPlanned}}, {After: "x"}, {After: "1/2"}, {After: "-1"}} {
		if _, err := f.List(t.Context(), nil); !errors.Is(err, pawl.ErrArgumentInvalid) {
			t.Errorf("%+v: %v", f, err)
		}
	}
}

// Get returns who holds the job, its errors, and what operators did.
func TestShow_TellsAll(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, err := job.Enqueue(t.Context(), b.pool, job.Request{Queue: "q", Kind: "k", Payload: []byte{0, 255}, Headers: map[string]any{"a": "b"}})
	b.must(err)
	j := b.claim()
	_, err = j.Fail(t.Context(), b.pool, pawl.Final(errors.New("boom")), job.Backoff{})
	b.must(err)
	b.do(ops.JobRef.Retry, j.ID, ops.Retried)
	b.claim()
	d, err := ops.JobRef{ID: j.ID}.Get(t.Context(), b.pool)
	b.must(err)
	if string(d.Payload) != "\x00\xff" || d.PayloadOctets != 2 || d.Headers["a"] != "b" || d.Attempts != 1 {
		t.Errorf("%+v", d)
	}
	if len(d.Errors) != 1 || d.Errors[0].Error != "final: boom" || d.Errors[0].Attempt != 1 || d.Errors[0].At.IsZero() {
		t.Errorf("errors: %+v", d.Errors)
	}
	if d.WorkerID != b.worker || d.Worker != "test" || d.WorkerPresence || !d.LeaseExpiresAt.After(d.WorkerSeenAt) || d.WorkerSeenAt.IsZero() {
		t.Errorf("holder: %+v", d)
	}
	if len(d.Changes) != 1 || d.Changes[0].Verb != "job_retry" || d.Changes[0].Actor != "ann" || d.Changes[0].After == nil {
		t.Errorf("changes: %+v", d.Changes)
	}
}

// A job that was claimed without a worker has a lease and no worker name.
func TestShow_RowLease(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.enqueue()
	b.exec("select pawl_v1.job_claim_id($1, null)", id)
	d, err := ops.JobRef{ID: id}.Get(t.Context(), b.pool)
	b.must(err)
	if d.WorkerID != 0 || d.Worker != "" || !d.LeaseExpiresAt.After(d.ReadAt) {
		t.Errorf("holder: %+v", d)
	}
}

// A discarded job is gone, but its audit record stays.
func TestShow_AbsentKeepsItsAudit(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.in(ops.StatusDeadLetter)
	b.do(ops.JobRef.Discard, id, ops.Discarded)
	if _, err := (ops.JobRef{ID: id}).Get(t.Context(), b.pool); !errors.Is(err, pawl.ErrNotFound) {
		t.Errorf("%v", err)
	}
	changes, err := ops.JobRef{ID: id}.Changes(t.Context(), b.pool)
	if err != nil || len(changes) != 1 || changes[0].After != nil {
		t.Errorf("%+v, %v", changes, err)
	}
}

// hot_retries shows jobs that are about to fail, but none that has ended.
func TestHotRetries(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, status := range ops.JobStatuses() {
		b.in(status)
	}
	b.wantCount("select count(*) from pawl_v1.hot_retries", 0)
	b.exec("update pawl.job set attempts = 5")
	b.wantCount("select count(*) from pawl_v1.hot_retries where status in ('pending', 'waiting', 'processing') and last_error = 'boom'", 3)
	b.wantCount("select count(*) from pawl_v1.hot_retries", 3)
}

// hot_retries shows commands that fail repeatedly, with scope and key. It leaves out commands that
// are finished, failed or unknown, because they are not retried.
func TestHotRetries_HasCommands(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(`insert into pawl.command (scope, key, hash, attempts, status, failure_message, expires_at)
select 'orders', s.status || ' ' || n.attempts, sha256(''), n.attempts, s.status, 'the stock service is away', clock_timestamp() + interval '1 day'
  from unnest(array['processing', 'succeeded', 'failed_retryable', 'failed_final', 'unknown']) as s (status)
 cross join unnest(array[4, 5]) as n (attempts)`)
	b.wantCount("select count(*) from pawl_v1.hot_retries", 2)
	b.wantCount(`select count(*) from pawl_v1.hot_retries
 where kind = 'command' and scope = 'orders' and key in ('processing 5', 'failed_retryable 5') and attempts = 5
   and last_error = 'the stock service is away' and id is null`, 2)
}

// A worker that leaves under REPEATABLE READ leaves its row to the next sweep, which may be much
// later. No read fails because of it.
func TestLook_AfterAWorkerHasLeft(t *testing.T) {
	t.Parallel()
	b := setup(t)
	before, err := ops.Look(t.Context(), b.pool)
	b.must(err)
	b.exec("insert into pawl.worker (name) values ('left')")
	tx := b.begin()
	_, err = tx.Exec(t.Context(), "set transaction isolation level repeatable read")
	b.must(err)
	_, err = tx.Exec(t.Context(), "select pawl_v1.worker_leave(w.id) from pawl.worker as w where w.name = 'left'")
	b.must(err)
	b.must(tx.Commit(t.Context()))
	b.wantCount("select count(*) from pawl.worker as w where w.name = 'left' and not isfinite(w.seen_at)", 1)
	after, err := ops.Look(t.Context(), b.pool)
	b.must(err)
	if len(after.Workers) != len(before.Workers) {
		t.Errorf("workers: %+v", after.Workers)
	}
	b.exec(`insert into pawl.job (queue, kind, payload, status, claimed_by, fence, attempts)
select 'q', 'held', '', 'processing', w.id, 1, 1 from pawl.worker as w where w.name = 'left'`)
	held, err := ops.JobRef{ID: int64(b.count("select j.id from pawl.job as j where j.kind = 'held'"))}.Get(t.Context(), b.pool)
	if b.must(err); held.Worker == "" || !held.WorkerSeenAt.IsZero() {
		t.Errorf("%+v", held)
	}
}
