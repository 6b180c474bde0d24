package delivery

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/internal/contract"
)

// A Sequence is a delivery's number at the gate of a resource.
type Sequence struct {
	Consumer  string // 1 to 255 octets
	Resource  string // 1 to 255 octets: what the numbers count, such as one account
	Seq       int64
	Mode      string // "latest" or "strict"
	First     *int64 // of a strict gate: the number that comes first; nil: nobody passes until an operator has reset the gate
	HoldLimit int    // how many a strict gate holds; default 1000, at most 1,000,000
}

// An Admission is a gate's answer to a [Sequence].
type Admission string

const (
	Passed Admission = "passed" // it may take effect, and the gate stands at its number once this transaction commits
	Stale  Admission = "stale"  // its number or a newer one took effect before: drop it
	Early  Admission = "early"  // numbers before it are missing: store it and call [Hold]
	Full   Admission = "full"   // early, and the gate holds as many as it may: a dead letter
)

// Pass asks the gate, as the first statement of the handler and behind the savepoint that a failure rolls back to. It locks the gate
// until the transaction ends. next is the lowest number that is held there, nil if none is.
//
// Errors: SQLSTATE 55P03 if another transaction has the gate for longer than 2 s; leave the message for later.
func Pass(ctx context.Context, tx pgx.Tx, t Sequence) (a Admission, next *int64, err error) {
	row, err := contract.GatePass(ctx, tx, contract.GatePassArgs{Consumer: t.Consumer, Resource: t.Resource, Seq: t.Seq,
		Mode: t.Mode, First: t.First, HoldLimit: t.HoldLimit})
	return Admission(row.Outcome), row.NextHeld, err
}

// Hold notes, in the transaction in which [Pass] said early, which job the delivery has been stored as. Whoever passes with the number
// before makes that job due; until then it is due when its RetryIn has passed.
func Hold(ctx context.Context, tx pgx.Tx, t Sequence, jobID int64) error {
	return contract.GateHold(ctx, tx, t.Consumer, t.Resource, t.Seq, jobID)
}

// HoldAgain holds a delivery that a job found early, in the transaction of [Pass] that also finishes this job: a copy of the job, whose id
// is returned, takes it over. The attempt is not charged.
//
// Errors: [pawl.ErrFenceLost] if the job does not own the delivery any more.
func HoldAgain(ctx context.Context, tx pgx.Tx, t Sequence, key string, jobID int64, retryIn time.Duration) (copied int64, err error) {
	return contract.GateHoldAgain(ctx, tx, t.Consumer, t.Resource, t.Seq, key, jobID, retryIn)
}
