package job

import (
	"context"
	"time"

	"github.com/pawl-go/pawl/internal/contract"
	"github.com/pawl-go/pawl/internal/kick"
)

// Changed is what became of a job that its application changed.
type Changed struct {
	// Done: the job is changed. Else it is as it was.
	Done bool
	// Was is its status before: "pending" (also one that waits for its time or its next attempt), "waiting" (for its turn in a lane),
	// "processing", "unknown", "dead_letter", "cancelled" or "succeeded". Empty if there is no such job: it has finished, was discarded, or
	// was never there.
	Was string
	// Hint is why nothing was done, and the next step. Empty if Done, or if there is no such job.
	Hint string
}

// CancelByID ends a job that your application enqueued and that has not ended. In your transaction
// it counts if and only if you commit: cancel the reminder in the transaction that marks the order
// paid. No record is left in the audit; operators use `pawl jobs cancel`. From within the job's own
// handler return [Cancel].
//
// A job that waits will not run. If it was running ([Changed.Was] is "processing") its context ends
// at its worker's next heartbeat, 500 ms after your commit at most, and its end is refused; what it
// has done outside of the database stays done. An event of an outbox that waits behind others of
// its aggregate is processing, too, while a batch with it is being published; a batch that begins
// before your commit takes it along. Its Key stays remembered: the same request is a duplicate. The
// row stays, cancelled, until an operator retries or discards it.
//
// Errors: 55P03, and [pawl.Retryable], if an open transaction has had the job's row locked for 2 s.
// That is most likely its handler's, as of [HandleTx]: let it end, and look at what it did.
func CancelByID(ctx context.Context, db DB, id int64) (Changed, error) {
	row, err := contract.JobCancelOwn(ctx, db, id)
	return changed(ctx, db, row, err)
}

// Reschedule lets a job that your application enqueued, and that waits, run at another time, earlier or later: startIn from now by the clock of
// the database, 0 to 10 years. In your transaction it counts if and only if you commit. Attempts, Key and the place in a Lane stay; while a
// job waits whose turn it is, its lane waits. A job that is running or has ended is left as it is.
//
// Errors: [pawl.ErrArgumentInvalid] for startIn. 55P03 as of [CancelByID].
func Reschedule(ctx context.Context, db DB, id int64, startIn time.Duration) (Changed, error) {
	row, err := contract.JobReschedule(ctx, db, id, startIn)
	if err == nil && row.Queue != "" && startIn == 0 {
		kick.AfterCommit(db, row.Queue)
	}
	return changed(ctx, db, row, err)
}

func changed(ctx context.Context, db DB, row contract.JobOwnRow, err error) (Changed, error) {
	if err != nil {
		return Changed{}, err
	}
	if err := proved(ctx, db, row.ReadOn); err != nil {
		return Changed{}, err
	}
	done := row.Outcome == "cancelled" || row.Outcome == "rescheduled"
	if row.Outcome == "absent" {
		row.Hint = ""
	}
	return Changed{Done: done, Was: row.Status, Hint: row.Hint}, nil
}
