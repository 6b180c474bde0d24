package job

import (
	"context"
	"time"

	"github.com/pawl-go/pawl/internal/contract"
	"github.com/pawl-go/pawl/internal/kick"
)

// Changed is the result of a change to a job by its application.
type Changed struct {
	// Done reports whether the job was changed.
	Done bool
	// Was is the job's status before the call: "pending" (including jobs that wait for their time
	// or a retry), "waiting" (for its turn in a lane), "processing", "unknown", "dead_letter",
	// "cancelled" or "succeeded". It is empty if there is no such job: it has finished, was
	// discarded, or never existed.
	Was string
	// Hint says why the job was not changed, and the next step. Empty if Done or without a job.
	Hint string
}

// CancelByID cancels a job that your application enqueued and that has not ended. In your
// transaction it takes effect if and only if you commit. For example, cancel the reminder in the
// transaction that marks the order paid. It is not recorded in the audit log; operators use `pawl
// jobs cancel`. From the job's own handler return [Cancel].
//
// A waiting job will not run. If the job was running ([Changed.Was] is "processing"), its context
// ends at its worker's next heartbeat, at most 500 ms after your commit. Its end is rejected, and
// its effects outside the database remain. An outbox event that waits behind others of its
// aggregate is also processing while a batch with it is published. A batch that begins before your
// commit includes it. The Key stays remembered, so the same request is a duplicate. The cancelled
// row remains until an operator retries or discards it.
//
// Errors: 55P03, which is [pawl.Retryable], if an open transaction has locked the job's row for 2
// s. That is usually its handler's: let it end and look at its result.
func CancelByID(ctx context.Context, db DB, id int64) (Changed, error) {
	row, err := contract.JobCancelOwn(ctx, db, id)
	return changed(ctx, db, row, err)
}

// Reschedule sets a new start time for a waiting job that your application enqueued: startIn from
// now by the database's clock, 0 to 10 years. In your transaction it takes effect if and only if
// you commit. Attempts, Key and the position in a Lane remain. While the job that has the turn
// waits, its lane waits. A running or ended job is not changed.
//
// Errors: [pawl.ErrArgumentInvalid] for startIn; 55P03 as in [CancelByID].
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
	if err := replicated(ctx, db, row.ReadOn); err != nil {
		return Changed{}, err
	}
	done := row.Outcome == "cancelled" || row.Outcome == "rescheduled"
	if row.Outcome == "absent" {
		row.Hint = ""
	}
	return Changed{Done: done, Was: row.Status, Hint: row.Hint}, nil
}
