package ops_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/ops"
)

// manyDead creates n dead letters of queue "q", every third with another error, every fifth of
// another kind.
func (b *bed) manyDead(n int) {
	b.Helper()
	b.exec(`insert into pawl.job (queue, kind, payload, status, attempts, last_errors)
select 'q', case when n % 5 = 0 then 'other' else 'k' end, 'x', 'dead_letter', 3,
       jsonb_build_array(jsonb_build_object('at', now(), 'attempt', 3, 'error', case when n % 3 = 0 then '100% wrong' else 'stock is away' end))
  from generate_series(1, $1::int) as n`, n)
}

// All jobs that a filter selects are changed, each with its audit record. Others stay.
func TestBulk(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.manyDead(900)
	b.in(ops.StatusPending)
	filter := ops.Jobs{Queue: "q", Kind: "k", Error: "100% wrong"}
	if n, err := (ops.Jobs{Kind: "k", Error: "100% wrong", Statuses: []ops.Status{ops.StatusDeadLetter}}).Count(t.Context(), b.pool); err != nil || n != 240 {
		t.Errorf("counted %d, %v", n, err)
	}
	told := 0
	got, err := filter.RetryAll(t.Context(), b.pool, by, func(ops.Tally) { told++ })
	if err != nil || got != (ops.Tally{Matched: 240, Done: 240}) || told != 2 {
		t.Errorf("%+v, %v, told %d times", got, err, told)
	}
	b.wantCount("select count(*) from pawl.audit where verb = 'job_retry' and actor = 'ann' and before ->> 'status' = 'dead_letter'", 240)
	if got, err = (ops.Jobs{}).DiscardAll(t.Context(), b.pool, by, nil); err != nil || got != (ops.Tally{Matched: 660, Done: 660}) {
		t.Errorf("%+v, %v", got, err)
	}
	b.wantCount("select count(*) from pawl.job where status = 'pending'", 241)
	b.wantCount("select count(*) from pawl.job", 241)
	if got, err = (ops.Jobs{OlderThan: time.Hour, Statuses: []ops.Status{ops.StatusPending}}).DiscardAll(t.Context(), b.pool, by, nil); err != nil || got.Matched != 0 {
		t.Errorf("%+v, %v", got, err)
	}
}

// If a bulk change ends early, its changes stay, and another run does the rest.
func TestBulk_Resumes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.manyDead(500)
	ctx, cancel := context.WithCancel(t.Context())
	got, err := ops.Jobs{}.RetryAll(ctx, b.pool, by, func(ops.Tally) { cancel() })
	if !errors.Is(err, context.Canceled) || got.Done != 200 {
		t.Errorf("%+v, %v", got, err)
	}
	b.wantCount("select count(*) from pawl.job where status = 'pending'", 200)
	if got, err = (ops.Jobs{}).RetryAll(t.Context(), b.pool, by, nil); err != nil || got != (ops.Tally{Matched: 300, Done: 300}) {
		t.Errorf("%+v, %v", got, err)
	}
	b.wantCount("select count(*) from pawl.audit", 500)
}

// A job that is locked, and one that was retried meanwhile, are counted and left alone.
func TestBulk_LeavesWhatIsLocked(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.manyDead(5)
	tx := b.begin()
	_, err := tx.Exec(t.Context(), "select from pawl.job where id = 3 for update")
	b.must(err)
	got, err := ops.Jobs{}.DiscardAll(t.Context(), b.pool, by, nil)
	if err != nil || got != (ops.Tally{Matched: 5, Done: 4, Locked: 1}) || got.Seen() != 5 {
		t.Errorf("%+v, %v", got, err)
	}
	b.must(tx.Rollback(t.Context()))
	b.wantCount("select count(*) from pawl.audit", 4)
	for name, bad := range map[string]ops.By{"no actor": {Reason: "r"}, "no reason": {Actor: "a"}} {
		if _, err := (ops.Jobs{}).RetryAll(t.Context(), b.pool, bad, nil); !errors.Is(err, pawl.ErrArgumentInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := (ops.Jobs{Statuses: []ops.Status{"dead"}}).RetryAll(t.Context(), b.pool, by, nil); !errors.Is(err, pawl.ErrArgumentInvalid) {
		t.Errorf("%v", err)
	}
}
