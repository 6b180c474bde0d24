package delivery

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/internal/contract"
)

// A Sequence is a delivery's number at the gate of a resource.
type Sequence struct {
	Consumer string // 1 to 255 bytes
	Resource string // 1 to 255 bytes: the thing that is numbered, such as an account
	Seq      int64
	Mode     string // "latest" or "strict"
	// of a strict gate: the first number; nil: none passes until an operator has reset the gate
	First     *int64
	HoldLimit int // deliveries that a strict gate may hold; default 1000, at most 1,000,000
}

// An Admission is a gate's answer to a [Sequence].
type Admission string

const (
	Passed Admission = "passed" // it may take effect; after COMMIT the gate stands at its number
	Stale  Admission = "stale"  // this number or a newer one took effect before: drop it
	Early  Admission = "early"  // earlier numbers are missing: store it and call [Hold]
	Full   Admission = "full"   // early, and the gate holds as many as it may: dead-letter it
)

// Pass checks a delivery at the gate. Call it as the first statement of the handler, after the
// savepoint to which a failure rolls back. It locks the gate until the transaction ends. next is
// the lowest number that the gate holds, or nil.
//
// Errors: SQLSTATE 55P03 if another transaction holds the gate for more than 2 s; try the message
// again later.
func Pass(ctx context.Context, tx pgx.Tx, t Sequence) (a Admission, next *int64, err error) {
	row, err := contract.GatePass(ctx, tx, contract.GatePassArgs{Consumer: t.Consumer, Resource: t.Resource, Seq: t.Seq,
		Mode: t.Mode, First: t.First, HoldLimit: t.HoldLimit})
	return Admission(row.Outcome), row.NextHeld, err
}

// Hold records the job that stores an early delivery, in the transaction of [Pass]. When the
// previous number passes, that job becomes due. Without that, it is due after its RetryIn.
func Hold(ctx context.Context, tx pgx.Tx, t Sequence, jobID int64) error {
	return contract.GateHold(ctx, tx, t.Consumer, t.Resource, t.Seq, jobID)
}

// HoldAgain holds a delivery that a job found early. Call it in the transaction of [Pass], which
// also finishes this job. A copy of the job, whose id is returned, takes the delivery over. The
// attempt is not charged.
//
// Errors: [pawl.ErrFenceLost] if the job no longer owns the delivery.
func HoldAgain(ctx context.Context, tx pgx.Tx, t Sequence, key string, jobID int64, retryIn time.Duration) (copied int64, err error) {
	return contract.GateHoldAgain(ctx, tx, t.Consumer, t.Resource, t.Seq, key, jobID, retryIn)
}
