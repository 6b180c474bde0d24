package ops

import (
	"context"
	"slices"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/contract"
)

// bulkBatch is how many jobs are changed in one transaction.
const bulkBatch = 200

// A Bulk counts what became of many jobs.
type Bulk struct {
	Matched int // when it began
	Done    int // retried or discarded, each with its record
	Refused int // changed by somebody else in between, or never fit for the verb
	Locked  int // an open transaction had them
	Absent  int // finished or discarded in between
}

// Seen counts those that have been looked at.
func (b Bulk) Seen() int { return b.Done + b.Refused + b.Locked + b.Absent }

// Count counts the jobs that a filter selects; After and Limit do not count.
//
// Errors: as of [List].
func Count(ctx context.Context, db DB, f Filter) (int, error) {
	f.After, f.Limit = 0, 0
	if err := f.check(); err != nil {
		return 0, err
	}
	count, _, err := contract.JobCount(ctx, db, f.args())
	return count, err
}

// RetryAll does [Retry] for each job that the filter selects when it begins, dead letters unless Statuses says otherwise; After and
// Limit do not count. It goes by id, in transactions of 200, so what was done stays done if it ends early: begin it again for the
// rest. A job whose row is locked is left out. By.From is set to the filter's statuses. progress, which may be nil, is told after
// each transaction.
//
// Errors: as of [List] and [Retry]. The count is right beside an error, too.
func RetryAll(ctx context.Context, db DB, f Filter, by By, progress func(Bulk)) (Bulk, error) {
	return bulk{contract.JobRetryMany, contract.JobRetry, progress}.run(ctx, db, f, by)
}

// DiscardAll does [Discard] in the same way.
func DiscardAll(ctx context.Context, db DB, f Filter, by By, progress func(Bulk)) (Bulk, error) {
	return bulk{contract.JobDiscardMany, contract.JobDiscard, progress}.run(ctx, db, f, by)
}

// A bulk is a verb for many jobs.
type bulk struct {
	many     func(ctx context.Context, db DB, ids []int64, a contract.OperateArgs) ([]contract.OperateRow, error)
	one      func(ctx context.Context, db DB, id int64, a contract.OperateArgs) (contract.OperateRow, error)
	progress func(Bulk)
}

func (v bulk) run(ctx context.Context, db DB, f Filter, by By) (b Bulk, err error) {
	if len(f.Statuses) == 0 {
		f.Statuses = []Status{StatusDeadLetter}
	}
	f.After, f.Limit = 0, bulkBatch
	if err := f.check(); err != nil {
		return b, err
	}
	if err := by.only("job.bulk", "From"); err != nil {
		return b, err
	}
	by.From = f.Statuses
	count, last, err := contract.JobCount(ctx, db, f.args())
	if err != nil {
		return b, err
	}
	b.Matched = count
	for f.After < last {
		ids, err := contract.JobIDs(ctx, db, f.args())
		if err != nil || len(ids) == 0 {
			return b, err
		}
		f.After = ids[len(ids)-1]
		// Those that a filter would select only since it began, a retried job that died again among them, are not meant.
		ids = slices.DeleteFunc(ids, func(id int64) bool { return id > last })
		if err := v.batch(ctx, db, ids, by.args(), &b); err != nil {
			return b, err
		}
		if v.progress != nil {
			v.progress(b)
		}
	}
	return b, nil
}

// batch changes some jobs in one transaction, or, if one of them is in the way, each in its own.
func (v bulk) batch(ctx context.Context, db DB, ids []int64, a contract.OperateArgs, b *Bulk) error {
	rows, err := v.many(ctx, db, ids, a)
	if err == nil {
		for _, r := range rows {
			b.count(Outcome(r.Outcome))
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
			b.count(Outcome(row.Outcome))
		case pawl.CodeOf(err) == "55P03":
			b.Locked++
		default:
			return err
		}
	}
	return nil
}

func (b *Bulk) count(o Outcome) {
	switch o {
	case Retried, Discarded:
		b.Done++
	case Absent:
		b.Absent++
	default:
		b.Refused++
	}
}
