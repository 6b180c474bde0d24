package inbox

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/contract"
)

// A Claim is the answer to "has this delivery been seen?", valid in the transaction it was asked in.
type Claim struct {
	// Fresh: nobody has seen it. This transaction owns it; do the work and commit, or [Claim.Land] it.
	// Otherwise it took effect before, or a durable job owns it: do nothing and acknowledge.
	Fresh bool
	// JobID is the job that owns the delivery; 0 if it was processed in the transaction that claimed it.
	JobID int64
	// ReceivedAt is when it was first claimed, by the database's clock.
	ReceivedAt time.Time

	intent pawl.Intent
}

// Take claims the delivery named by intent, whose Scope is the consumer. Call it as the first statement of the handler's
// transaction.
//
// Errors: [pawl.ErrMessageReused] if the key came before with another payload. SQLSTATE 55P03, which is
// [pawl.Retryable], if another transaction is processing it right now: after at most 50 ms the caller is told instead
// of waiting with a connection in its hand; roll back and do not acknowledge.
func Take(ctx context.Context, tx pgx.Tx, intent pawl.Intent) (Claim, error) {
	if err := intent.Validate(); err != nil {
		return Claim{}, err
	}
	row, err := contract.InboxClaim(ctx, tx, intent.Scope, intent.Key, intent.Fingerprint)
	if err != nil {
		return Claim{}, err
	}
	return claimOf(intent, row)
}

// A Pending is a [Take] that is sent as part of a batch, behind BEGIN: one round trip less.
type Pending struct {
	intent pawl.Intent
	row    contract.InboxClaimRow
}

// Prepare makes the Pending of an intent, for one batch.
func Prepare(intent pawl.Intent) (*Pending, error) {
	return &Pending{intent: intent}, intent.Validate()
}

// Queue adds the claim to a batch. Queue nothing behind it that must not happen for a duplicate.
func (p *Pending) Queue(b *pgx.Batch) {
	contract.InboxClaimStep(p.intent.Scope, p.intent.Key, p.intent.Fingerprint, &p.row)(b)
}

// Claim is the answer, once the batch has been closed without an error. Errors of the batch: see [Take].
func (p *Pending) Claim() (Claim, error) { return claimOf(p.intent, p.row) }

func claimOf(intent pawl.Intent, row contract.InboxClaimRow) (Claim, error) {
	claim := Claim{ReceivedAt: row.ReceivedAt, intent: intent}
	if row.JobID != nil {
		claim.JobID = *row.JobID
	}
	switch row.Outcome {
	case "processed":
		claim.Fresh = true
	case "duplicate_ignored":
	default:
		return Claim{}, &pawl.Error{Op: "inbox.claim", Code: pawl.CodeUnknownState, Err: fmt.Errorf("outcome %q", row.Outcome)}
	}
	return claim, nil
}

// A Landing says what becomes of a delivery that could not be applied now.
type Landing struct {
	Queue, Kind string         // of the job; 1 to 255 octets each
	Body        []byte         // the payload, exact octets, at most 4 MiB
	Headers     map[string]any // whatever the job's handler needs beside it
	Attempts    int            // tries already made; the one that failed counts
	Suspect     bool           // it may have killed a process: run it alone
	MaxAttempts int            // default 25, 1 to 1000
	RetryIn     time.Duration  // not before; millisecond steps
	Failure     error          // why; kept in the job's error history
	Dead        bool           // no retry: straight to the dead letters
}

// Land gives the delivery to a durable job, in the transaction that claimed it, and returns the job's id. Afterwards
// the delivery may be acknowledged once this transaction has committed.
//
// Errors: [pawl.ErrFenceLost] if the claim was not made in this transaction.
func (c Claim) Land(ctx context.Context, tx pgx.Tx, l Landing) (jobID int64, err error) {
	if !c.Fresh {
		return 0, &pawl.Error{Op: "inbox.land", Code: pawl.CodeFenceLost, Err: fmt.Errorf("the delivery was not claimed here")}
	}
	args := contract.InboxLandArgs{
		Consumer: c.intent.Scope, MessageID: c.intent.Key,
		Queue: l.Queue, Kind: l.Kind, Args: l.Body, Headers: l.Headers,
		Attempts: l.Attempts, MaxAttempts: l.MaxAttempts, RetryIn: l.RetryIn, Dead: l.Dead,
	}
	if l.Suspect {
		args.Crashes = 1
	}
	if l.Failure != nil {
		f := contract.FailureOf(l.Failure)
		args.Failure = &f
	}
	row, err := contract.InboxLand(ctx, tx, args)
	return row.JobID, err
}

// Settle marks a landed delivery processed, in the transaction that applies its effect and finishes its job.
//
// Errors: [pawl.ErrFenceLost] if the job does not own the delivery any more; the transaction must not commit.
func Settle(ctx context.Context, tx pgx.Tx, consumer, key string, jobID int64) error {
	return contract.InboxSettle(ctx, tx, consumer, key, jobID)
}
