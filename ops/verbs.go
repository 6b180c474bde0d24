package ops

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/contract"
)

// DB is where a verb runs: your open pgx.Tx, or a pool or connection for a transaction of its own.
type DB = contract.DB

// By says who changes a job and why. Both go into the audit.
type By struct {
	// Actor is a person or a program, 1 to 255 octets. It is a claim: what a login may do is the roles' business.
	Actor string
	// Reason is for whoever reads the audit later, 1 to 4000 octets.
	Reason string
	// From narrows what the verb takes: a job in any other status is refused. It closes the gap between looking and doing,
	// in which somebody else may have retried the job. Default: all that the verb takes.
	From []Status
	// Fence is that of what you looked at: a job's, a step's or a command's. The verb changes nothing if there has been another attempt, call
	// or change since. Required by [SettleEffect], [AskAgain] and [SettleCommand], whose verdict is about what you saw; for a job 0 means any.
	Fence int64
	// Number is what a gate showed: [Gate.Last] for [ResetGate], [Gate.NextHeld] for [ReleaseGate]. Default: whatever it is.
	Number *int64
	// ProcessedAt is when a delivery had taken effect, as [ShowInbox] told, zero if it had not; for [ForgetInbox]. Default: whenever it was.
	ProcessedAt *time.Time
}

// only refuses a field that does not concern the verb.
func (b By) only(op string, takes ...string) error {
	for field, given := range map[string]bool{"From": b.From != nil, "Fence": b.Fence != 0, "Number": b.Number != nil, "ProcessedAt": b.ProcessedAt != nil} {
		if given && !slices.Contains(takes, field) {
			return &pawl.Error{Op: op, Code: pawl.CodeArgumentInvalid, Err: fmt.Errorf("the field %s of By does not concern this verb", field),
				Hint: "leave it empty"}
		}
	}
	return nil
}

// An Outcome is what a verb did.
type Outcome string

// The outcomes.
const (
	Retried   Outcome = "retried"
	Cancelled Outcome = "cancelled"
	Discarded Outcome = "discarded"
	Refused   Outcome = "refused" // the job's status does not allow it; nothing changed
	Moved     Outcome = "moved"   // it is not what By says was looked at; nothing changed
	Absent    Outcome = "absent"  // no such job: finished, discarded, or never there
)

// A Result is the answer of a verb. Refusals are answers, not errors: with two operators at work they are to be expected.
type Result struct {
	Outcome Outcome
	Was     Status // the job's status when the verb looked; empty if absent
	Hint    string // the next step, if nothing changed
}

// Changed reports whether the verb did what it says.
func (r Result) Changed() bool {
	return r.Outcome == Retried || r.Outcome == Cancelled || r.Outcome == Discarded
}

// Retry makes a job due now with all its attempts before it: a dead letter, a cancelled job, or a pending one that waits for
// its next try. It is the same job and the same intent; its errors stay in its history.
//
// Errors: [pawl.ErrArgumentInvalid]; 55P03, and [pawl.Retryable], if an open transaction has the job's row locked.
func Retry(ctx context.Context, db DB, id int64, by By) (Result, error) {
	if err := by.only("job.retry", "From", "Fence"); err != nil {
		return Result{}, err
	}
	return result("job.retry")(contract.JobRetry(ctx, db, id, by.args()))
}

// Cancel ends a job that has not ended and keeps it, to be retried or discarded. A running attempt is fenced out: it cannot
// commit any more, and its worker is told at the next heartbeat. Effects outside the database cannot be called back.
//
// An attempt with an open transaction has the job's row locked. On a pool or connection its worker is asked to end it, which
// takes as long as the handler needs to notice the end of its context, and is given up after 8 s; in a transaction of yours nobody could hear that
// before you commit.
//
// Errors: as of [Retry].
func Cancel(ctx context.Context, db DB, id int64, by By) (Result, error) {
	if err := by.only("job.cancel", "From", "Fence"); err != nil {
		return Result{}, err
	}
	row, err := contract.JobCancel(ctx, db, id, by.args())
	_, inTx := db.(pawl.Tx)
	for asked, held := 0, true; held && asked < recalls && !inTx && pawl.CodeOf(err) == "55P03"; asked++ {
		var e error
		if held, e = contract.JobRecall(ctx, db, id); e != nil {
			return Result{}, errors.Join(err, e)
		}
		row, err = contract.JobCancel(ctx, db, id, by.args()) // also if no worker has it now: it may have ended since
	}
	return result("job.cancel")(row, err)
}

// recalls bounds how often a worker is asked to end a handler before its job is cancelled or said to be locked: each time
// waits 2 s for the lock.
const recalls = 4

// Discard deletes a job that nobody works on, its payload and its errors with it. The memory of its key stays: what comes
// again under it is a duplicate.
//
// Errors: as of [Retry].
func Discard(ctx context.Context, db DB, id int64, by By) (Result, error) {
	if err := by.only("job.discard", "From", "Fence"); err != nil {
		return Result{}, err
	}
	return result("job.discard")(contract.JobDiscard(ctx, db, id, by.args()))
}

func (b By) args() contract.OperateArgs {
	a := contract.OperateArgs{Actor: b.Actor, Reason: b.Reason, From: texts(b.From)}
	if b.Fence != 0 {
		a.Fence = &b.Fence
	}
	return a
}

func result(op string) func(contract.OperateRow, error) (Result, error) {
	return func(row contract.OperateRow, err error) (Result, error) {
		if err != nil {
			return Result{}, err
		}
		r := Result{Outcome: Outcome(row.Outcome), Was: Status(row.Status), Hint: row.Hint}
		if !r.Changed() && r.Outcome != Refused && r.Outcome != Absent {
			return Result{}, &pawl.Error{Op: op, Code: pawl.CodeUnknownState, Err: fmt.Errorf("outcome %q", row.Outcome)}
		}
		return r, nil
	}
}
