package delivery

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/catalog"
	"github.com/pawl-go/pawl/internal/contract"
	"github.com/pawl-go/pawl/internal/verdict"
)

// A Claim is the answer to "has this delivery been seen?", valid in the transaction it was asked in.
type Claim struct {
	// Fresh: nobody has seen it. This transaction owns it; do the work and commit, or [Claim.Store] it.
	// Otherwise it took effect before, or a durable job owns it: do nothing, commit, and acknowledge. With synchronous standbys the
	// COMMIT waits until what it took effect by is replicated; a rollback proves nothing.
	Fresh bool
	// Behind: it is fresh, and something of its lane is still open, so it must not be worked on now: [Claim.Store] it.
	Behind bool
	// JobID is the job that owns the delivery; 0 if it was processed in the transaction that claimed it.
	JobID int64
	// ReceivedAt is when it was first claimed, by the database's clock.
	ReceivedAt time.Time
	// ReadOn is not empty if it is not fresh, and the server replicates synchronously: this
	// transaction's COMMIT proves that its outcome is replicated, or txn.Replicated on that server.
	ReadOn string

	intent pawl.Intent
	lane   Lane
}

// A Lane orders deliveries: those of one lane are worked on one at a time, and in the order in which they were claimed even when
// some of them store. The zero Lane orders nothing.
type Lane struct {
	Queue  string // of the jobs that stored deliveries become, 1 to 255 octets
	Name   string // 1 to 255 octets: what the order is about, for instance the account
	Policy string // of a lane that is new, what a dead letter does to those behind it: "block" (default), "park" or "skip"
}

// Take claims the delivery named by intent, whose Scope is the consumer. Call it as the first statement of the handler's
// transaction.
//
// Errors: [pawl.ErrKeyReused] if the key came before with another payload. SQLSTATE 55P03, which is
// [pawl.Retryable], if another transaction is processing it right now: after at most 50 ms the caller is told instead
// of waiting with a connection in its hand; roll back and do not acknowledge.
func Take(ctx context.Context, tx pawl.Tx, intent pawl.Intent) (Claim, error) {
	return TakeInLane(ctx, tx, intent, Lane{})
}

// TakeInLane is [Take] for a delivery that has an order. It locks the lane until the transaction ends: the next delivery of the
// lane is told 55P03 until then.
func TakeInLane(ctx context.Context, tx pawl.Tx, intent pawl.Intent, lane Lane) (Claim, error) {
	if err := intent.Validate(); err != nil {
		return Claim{}, err
	}
	row, err := contract.InboxClaim(ctx, tx, intent.Scope, intent.Key, intent.Fingerprint, contract.InboxLane(lane))
	if err != nil {
		return Claim{}, err
	}
	return claimOf(intent, lane, row)
}

// TakeFor claims a second name of a delivery that was claimed under key in this transaction, and notes that key beside it. It is [Take]
// otherwise.
func TakeFor(ctx context.Context, tx pgx.Tx, name pawl.Intent, key string) (Claim, error) {
	if err := name.Validate(); err != nil {
		return Claim{}, err
	}
	row, err := contract.InboxClaimFor(ctx, tx, name.Scope, name.Key, name.Fingerprint, key)
	if err != nil {
		return Claim{}, err
	}
	return claimOf(name, Lane{}, row)
}

// A Pending is a [TakeInLane] that is sent as part of a batch, behind BEGIN: one round trip less.
type Pending struct {
	intent pawl.Intent
	lane   Lane
	row    contract.InboxClaimRow
}

// Prepare makes the Pending of an intent, for one batch.
func Prepare(intent pawl.Intent, lane Lane) (*Pending, error) {
	return &Pending{intent: intent, lane: lane}, intent.Validate()
}

// Queue adds the claim to a batch. Queue nothing behind it that must not happen for a duplicate.
func (p *Pending) Queue(b *pgx.Batch) {
	contract.InboxClaimStep(p.intent.Scope, p.intent.Key, p.intent.Fingerprint, contract.InboxLane(p.lane), &p.row)(b)
}

// Claim is the answer, once the batch has been closed without an error. Errors of the batch: see [Take].
func (p *Pending) Claim() (Claim, error) { return claimOf(p.intent, p.lane, p.row) }

// A PendingMany claims many deliveries of one consumer in one statement. One of them cannot spoil the others: what would be an
// error of [Take] is an answer of its own.
type PendingMany struct {
	consumer string
	intents  []pawl.Intent
	rows     []contract.InboxClaimRow
}

// PrepareMany makes the PendingMany of 1 to 1000 valid intents, which share their Scope.
func PrepareMany(intents []pawl.Intent) (*PendingMany, error) {
	for _, i := range intents {
		if err := i.Validate(); err != nil {
			return nil, err
		}
	}
	return &PendingMany{consumer: intents[0].Scope, intents: intents}, nil
}

// Queue adds the claims to a batch, as one statement.
func (p *PendingMany) Queue(b *pgx.Batch) {
	contract.InboxClaimManyStep(p.consumer, p.intents, func(rows []contract.InboxClaimRow) { p.rows = rows })(b)
}

// Claims returns the answer to each intent, once the batch has been closed without an error: a claim, or an error as of [Take],
// [pawl.ErrKeyReused] or 55P03.
func (p *PendingMany) Claims() (claims []Claim, refused []error) {
	claims, refused = make([]Claim, len(p.intents)), make([]error, len(p.intents))
	rows := p.rows
	// Without an answer for each, nothing is known of any: none may pass for a duplicate.
	if len(rows) != len(p.intents) {
		rows = make([]contract.InboxClaimRow, len(p.intents))
	}
	for n, row := range rows {
		switch row.Outcome {
		case "mismatch":
			refused[n] = &pawl.Error{Op: "inbox.claim", Code: pawl.CodeKeyReused,
				Err: fmt.Errorf("stored_hash %s, given_hash %s", row.Hashes.Stored, row.Hashes.Given)}
		case "in_progress":
			refused[n] = &pawl.Error{Op: "inbox.claim", Code: verdict.LockNotAvailable, Err: fmt.Errorf("message %s is being processed", p.intents[n].Key)}
		default:
			claims[n], refused[n] = claimOf(p.intents[n], Lane{}, row)
		}
	}
	return claims, refused
}

func claimOf(intent pawl.Intent, lane Lane, row contract.InboxClaimRow) (Claim, error) {
	claim := Claim{ReceivedAt: row.ReceivedAt, ReadOn: row.ReadOn, intent: intent, lane: lane}
	if row.JobID != nil {
		claim.JobID = *row.JobID
	}
	switch row.Outcome {
	case "processed":
		claim.Fresh = true
	case "behind":
		claim.Fresh, claim.Behind = true, true
	case "duplicate_ignored":
	default:
		return Claim{}, &pawl.Error{Op: "inbox.claim", Code: pawl.CodeUnknownState, Err: fmt.Errorf("outcome %q", row.Outcome)}
	}
	return claim, nil
}

// CodeMismatch is the Code of a [Storage] that keeps a delivery whose key came before with another payload.
const CodeMismatch pawl.Code = contract.CodeMismatch

// A Storage says what becomes of a delivery that could not be applied now.
type Storage struct {
	Queue, Kind string         // of the job; 1 to 255 octets each
	Payload     []byte         // exact octets, at most 4 MiB
	Headers     map[string]any // whatever the job's handler needs beside it
	Attempts    int            // tries already made; the one that failed counts
	Suspect     bool           // it may have killed a process or the server: run it alone
	MaxAttempts int            // default 25, 1 to 1000
	RetryIn     time.Duration  // not before; millisecond steps
	Failure     error          // why; kept in the job's error history
	Code        pawl.Code      // under which it is kept there; default that of Failure
	Dead        bool           // no retry: straight to the dead letters
	Outside     bool           // of the claim's lane: it had no turn, and stops nobody
}

// Store gives the delivery to a durable job, in the transaction that claimed it, and returns the job's id. Afterwards
// the delivery may be acknowledged once this transaction has committed. The job takes its place in the lane of the claim, whose
// Queue must be that of the Storage.
//
// Errors: [pawl.ErrFenceLost] if the claim was not made in this transaction.
func (c Claim) Store(ctx context.Context, tx pgx.Tx, l Storage) (jobID int64, err error) {
	if !c.Fresh {
		return 0, &pawl.Error{Op: "inbox.store", Code: pawl.CodeFenceLost, Err: fmt.Errorf("the delivery was not claimed here")}
	}
	args := contract.InboxStoreArgs{
		Consumer: c.intent.Scope, Key: c.intent.Key,
		Queue: l.Queue, Kind: l.Kind, Payload: l.Payload, Headers: l.Headers,
		Attempts: l.Attempts, MaxAttempts: l.MaxAttempts, RetryIn: l.RetryIn, Dead: l.Dead,
	}
	if !l.Outside {
		args.Lane, args.LanePolicy = c.lane.Name, c.lane.Policy
	}
	if l.Suspect {
		args.Crashes = 1
	}
	if l.Failure != nil {
		f := contract.FailureOf(l.Failure)
		f.Code = cmp.Or(string(l.Code), f.Code)
		args.Failure = &f
	}
	row, err := contract.InboxStore(ctx, tx, args)
	return row.JobID, err
}

// Settle marks a stored delivery processed, in the transaction that applies its effect and finishes its job.
//
// Errors: [pawl.ErrFenceLost] if the job does not own the delivery any more; the transaction must not commit.
func Settle(ctx context.Context, tx pgx.Tx, consumer, key string, jobID int64) error {
	return contract.InboxSettle(ctx, tx, consumer, key, jobID)
}

// Reserve reserves an intent for a job that is about to work for it with no transaction open, once
// tx commits. If another job is at work for it, it returns that job's status, "processing" or
// "unknown".
func Reserve(ctx context.Context, tx pgx.Tx, intent pawl.Intent, jobID int64) (busy string, err error) {
	if err := intent.Validate(); err != nil {
		return "", err
	}
	row, err := contract.InboxReserve(ctx, tx, intent.Scope, intent.Key, intent.Fingerprint, jobID)
	return row.Status, err
}

// Unreserve gives up what Reserve has reserved, in the transaction that ends the work.
func Unreserve(ctx context.Context, tx pgx.Tx, intent pawl.Intent, jobID int64) error {
	return contract.InboxUnreserve(ctx, tx, intent.Scope, intent.Key, jobID)
}

// Missing returns those keys that a consumer does not remember, in the order given: for whoever compares with what a sender says it has sent.
// Ask for no more than about a thousand at once.
func Missing(ctx context.Context, db pawl.DB, consumer string, keys []string) ([]string, error) {
	return catalog.InboxMissing(ctx, db, consumer, keys)
}
