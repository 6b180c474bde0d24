package ops

import (
	"context"
	"slices"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/catalog"
	"github.com/pawl-go/pawl/internal/contract"
	"github.com/pawl-go/pawl/internal/verdict"
)

// bulkBatch is how many jobs are changed in one transaction.
const bulkBatch = 200

// RetryAll applies [JobRef.Retry] to each job that is selected when it begins: dead letters, unless
// Statuses is set. It ignores After and Limit. It works by id, in transactions of 200. If it ends
// early, finished transactions stay; call it again for the rest. Jobs whose row is locked are
// skipped. progress, which may be nil, is called after each transaction. [DryRun] counts the
// selected jobs.
//
// Errors: those of List and [JobRef.Retry]. The tally is correct even with an error.
func (s Jobs) RetryAll(ctx context.Context, db pawl.DB, by By, progress func(Tally)) (Tally, error) {
	return bulk{contract.JobRetryMany, contract.JobRetry, progress}.run(ctx, db, s, by)
}

// DiscardAll applies [JobRef.Discard] in the same way.
func (s Jobs) DiscardAll(ctx context.Context, db pawl.DB, by By, progress func(Tally)) (Tally, error) {
	return bulk{contract.JobDiscardMany, contract.JobDiscard, progress}.run(ctx, db, s, by)
}

// A bulk is a verb that changes many jobs.
type bulk struct {
	many     func(ctx context.Context, db pawl.DB, ids []int64, a contract.OperateArgs) ([]contract.OperateRow, error)
	one      jobVerb
	progress func(Tally)
}

func (v bulk) run(ctx context.Context, db pawl.DB, s Jobs, by By) (t Tally, err error) {
	if len(s.Statuses) == 0 {
		s.Statuses = []Status{StatusDeadLetter}
	}
	s.After, s.Limit = "", 0
	q, err := s.query("job.bulk")
	if err != nil {
		return t, err
	}
	count, last, err := catalog.JobCount(ctx, db, q)
	t = Tally{DryRun: by.dryRun, Matched: count}
	if err != nil || by.dryRun {
		return t, err
	}
	q.Limit = bulkBatch
	for done := int64(0); done < last; {
		ids, err := catalog.JobIDs(ctx, db, q)
		if err != nil || len(ids) == 0 {
			return t, err
		}
		done = ids[len(ids)-1]
		q.After = []string{id(done)}
		// Skip jobs that were not selected at the beginning, such as a retried job that failed
		// again.
		ids = slices.DeleteFunc(ids, func(id int64) bool { return id > last })
		if err := v.batch(ctx, db, ids, JobRef{Statuses: s.Statuses}.args(by), &t); err != nil {
			return t, err
		}
		if v.progress != nil {
			v.progress(t)
		}
	}
	return t, nil
}

// batch changes jobs in one transaction. If a row is locked, it changes each job in a transaction
// of its own.
func (v bulk) batch(ctx context.Context, db pawl.DB, ids []int64, a contract.OperateArgs, t *Tally) error {
	rows, err := v.many(ctx, db, ids, a)
	if err == nil {
		for _, r := range rows {
			t.count(Outcome(r.Outcome))
		}
		return nil
	}
	if _, inTx := db.(pawl.Tx); inTx || !pawl.Retryable(err) {
		return err
	}
	for _, id := range ids {
		row, err := v.one(ctx, db, id, a)
		switch {
		case err == nil:
			t.count(Outcome(row.Outcome))
		case verdict.IsBusy(pawl.CodeOf(err)):
			t.Locked++
		default:
			return err
		}
	}
	return nil
}

func (t *Tally) count(o Outcome) {
	switch o {
	case Retried, Discarded:
		t.Done++
	case Absent:
		t.Absent++
	default:
		t.Refused++
	}
}
