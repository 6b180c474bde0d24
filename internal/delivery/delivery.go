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

// A Claim answers whether a delivery was seen before. It is valid only in the transaction that made
// it.
type Claim struct {
	// Fresh means that the delivery is new and this transaction owns it: do the work and commit, or
	// [Claim.Store] it. Otherwise it took effect before, or a durable job owns it: do nothing,
	// commit, and acknowledge. With synchronous standbys, the COMMIT waits until the earlier
	// outcome is replicated. A rollback proves nothing.
	Fresh bool
	// Behind means that the delivery is fresh, but an earlier one of its lane is still open. Do not
	// process it now: [Claim.Store] it.
	Behind bool
	// JobID is the job that owns the delivery, or 0 if the transaction that claimed it processed
	// it.
	JobID int64
	// ReceivedAt is when it was first claimed, by the database's clock.
	ReceivedAt time.Time
	// ReadOn is set if the delivery is not fresh and the server replicates synchronously. This
	// transaction's COMMIT, or txn.Replicated with ReadOn, then proves that the outcome is
	// replicated.
	ReadOn string
	// Epoch is that of the inbox before the claim, or zero if the caller did not ask for it.
	Epoch Epoch

	intent pawl.Intent
	lane   Lane
}

// A Lane orders deliveries. Those of one lane are processed one at a time, in the order in which
// they were claimed, even if some are stored. The zero Lane orders nothing.
type Lane struct {
	Queue string // of the jobs that store deliveries, 1 to 255 bytes
	Name  string // 1 to 255 bytes: the thing whose deliveries are ordered, such as an account
	// of a new lane: what a dead letter does to later deliveries: "block" (default), "park" or
	// "skip"
	Policy string
}

// Take claims the delivery named by intent, whose Scope is the consumer. Call it as the first
// statement of the handler's transaction.
//
// Errors: [pawl.ErrKeyReused] if the key was used before with another payload. SQLSTATE 55P03,
// which is [pawl.Retryable], if another transaction is processing the delivery. Take waits for it
// at most 50 ms, so that the caller does not hold a connection. Then roll back and do not
// acknowledge.
func Take(ctx context.Context, tx pawl.Tx, intent pawl.Intent) (Claim, error) {
	return TakeInLane(ctx, tx, intent, Lane{})
}

// TakeInLane is [Take] for an ordered delivery. It locks the lane until the transaction ends. Until
// then, the next delivery of the lane gets 55P03.
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

// TakeFor claims a second name for a delivery that this transaction claimed under key, and stores
// that key beside it. Otherwise it works like [Take].
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

// A Prepared is a [TakeInLane] that is sent in one batch with BEGIN, which saves a round trip.
type Prepared struct {
	intent pawl.Intent
	lane   Lane
	row    contract.InboxClaimRow
}

// Prepare returns the Prepared of an intent, for one batch.
func Prepare(intent pawl.Intent, lane Lane) (*Prepared, error) {
	return &Prepared{intent: intent, lane: lane}, intent.Validate()
}

// Queue adds the claim to a batch. Do not queue anything after it that must not happen for a
// duplicate.
func (p *Prepared) Queue(b *pgx.Batch) {
	contract.InboxClaimStep(p.intent.Scope, p.intent.Key, p.intent.Fingerprint, contract.InboxLane(p.lane), &p.row)(b)
}

// Claim returns the answer after the batch was closed without an error. For errors of the batch,
// see [Take].
func (p *Prepared) Claim() (Claim, error) { return claimOf(p.intent, p.lane, p.row) }

// A PreparedMany claims many deliveries of one consumer in one statement. Cases that are an error
// of [Take] become the answer for that delivery, so that they do not fail the others.
type PreparedMany struct {
	consumer string
	intents  []pawl.Intent
	rows     []contract.InboxClaimRow
}

// PrepareMany returns the PreparedMany of 1 to 1000 intents, which must share their Scope. It fails
// if one is invalid.
func PrepareMany(intents []pawl.Intent) (*PreparedMany, error) {
	for _, i := range intents {
		if err := i.Validate(); err != nil {
			return nil, err
		}
	}
	return &PreparedMany{consumer: intents[0].Scope, intents: intents}, nil
}

// Queue adds the claims to a batch as one statement.
func (p *PreparedMany) Queue(b *pgx.Batch) {
	contract.InboxClaimManyStep(p.consumer, p.intents, func(rows []contract.InboxClaimRow) { p.rows = rows })(b)
}

// Claims returns the answer to each intent after the batch was closed without an error. Each answer
// is a claim or an error of [Take]: [pawl.ErrKeyReused] or 55P03.
func (p *PreparedMany) Claims() (claims []Claim, refused []error) {
	claims, refused = make([]Claim, len(p.intents)), make([]error, len(p.intents))
	rows := p.rows
	// If the number of answers is wrong, all are unknown: no delivery may count as a duplicate.
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

// CodeMismatch is the Code of a [Storage] for a delivery whose key was used before with another
// payload.
const CodeMismatch pawl.Code = contract.CodeMismatch

// A Storage says how to store a delivery that could not be applied now.
type Storage struct {
	Queue, Kind string         // of the job; 1 to 255 bytes each
	Payload     []byte         // exact bytes, at most 4 MiB
	Headers     map[string]any // extra data for the job's handler
	Attempts    int            // attempts already made, including the one that failed
	Suspect     bool           // it may have crashed a process or the server, so it runs alone
	MaxAttempts int            // default 25, 1 to 1000
	RetryIn     time.Duration  // earliest retry; millisecond steps
	Failure     error          // the reason; kept in the job's error history
	Code        pawl.Code      // code in that history; default: that of Failure
	Dead        bool           // no retry: it becomes a dead letter at once
	Outside     bool           // it is not in the claim's lane, and holds up no other delivery
}

// Store hands the delivery to a durable job, in the transaction that claimed it, and returns the
// job's id. Acknowledge the delivery after this transaction has committed. The job takes the
// claim's place in its lane, whose Queue must be that of the Storage.
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

// Settle marks a stored delivery as processed, in the transaction that applies its effect and
// finishes its job.
//
// Errors: [pawl.ErrFenceLost] if the job no longer owns the delivery; the transaction must not
// commit.
func Settle(ctx context.Context, tx pgx.Tx, consumer, key string, jobID int64) error {
	return contract.InboxSettle(ctx, tx, consumer, key, jobID)
}

// Reserve reserves an intent for a job that will work on it, after tx commits, without an open
// transaction. If another job works on the intent, Reserve returns that job's status, "processing"
// or "unknown".
func Reserve(ctx context.Context, tx pgx.Tx, intent pawl.Intent, jobID int64) (busy string, err error) {
	if err := intent.Validate(); err != nil {
		return "", err
	}
	row, err := contract.InboxReserve(ctx, tx, intent.Scope, intent.Key, intent.Fingerprint, jobID)
	return row.Status, err
}

// Unreserve releases a reservation, in the transaction that ends the work.
func Unreserve(ctx context.Context, tx pgx.Tx, intent pawl.Intent, jobID int64) error {
	return contract.InboxUnreserve(ctx, tx, intent.Scope, intent.Key, jobID)
}

// Missing returns the keys that a consumer does not remember, in the order given. Use it to compare
// with a sender's list, at most about 1000 keys a call.
func Missing(ctx context.Context, db pawl.DB, consumer string, keys []string) ([]string, error) {
	return catalog.InboxMissing(ctx, db, consumer, keys)
}
