package contract

import (
	"context"
	"time"

	"github.com/pawl-go/pawl"
)

// InboxClaimRow is the answer of inbox_claim.
type InboxClaimRow struct {
	Outcome     string // "processed": ours now; "duplicate_ignored"
	ResultRef   *string
	JobID       *int64
	ReceivedAt  time.Time
	ProcessedAt *time.Time
}

const inboxClaimSQL = "select c.outcome, c.result_ref, c.job_id, c.received_at, c.processed_at from pawl_v1.inbox_claim($1, $2, $3) as c"

func (r *InboxClaimRow) columns() []any {
	return []any{&r.Outcome, &r.ResultRef, &r.JobID, &r.ReceivedAt, &r.ProcessedAt}
}

// InboxClaim calls pawl_v1.inbox_claim.
func InboxClaim(ctx context.Context, db DB, consumer, messageID string, hash pawl.Fingerprint) (r InboxClaimRow, err error) {
	err = one(ctx, db, "inbox.claim", inboxClaimSQL, []any{consumer, messageID, hash[:]}, r.columns()...)
	return r, err
}

// InboxClaimStep is InboxClaim as a step.
func InboxClaimStep(consumer, messageID string, hash pawl.Fingerprint, r *InboxClaimRow) Step {
	return step("inbox.claim", inboxClaimSQL, []any{consumer, messageID, hash[:]}, r.columns()...)
}

// InboxLandArgs are the arguments of inbox_land.
type InboxLandArgs struct {
	Consumer, MessageID string
	Queue, Kind         string
	Args                []byte
	Headers             map[string]any
	Attempts, Crashes   int
	MaxAttempts         int
	RetryIn             time.Duration
	Failure             *Failure
	Dead                bool
}

// InboxLandRow is the answer of inbox_land.
type InboxLandRow struct {
	Outcome     string // "landed" or "dead_letter"
	JobID       int64
	AvailableAt time.Time
}

// InboxLand calls pawl_v1.inbox_land.
func InboxLand(ctx context.Context, db DB, a InboxLandArgs) (InboxLandRow, error) {
	o := Options{"attempts": a.Attempts}
	set(o, "crashes", a.Crashes)
	set(o, "max_attempts", a.MaxAttempts)
	set(o, "retry_in_ms", a.RetryIn.Milliseconds())
	set(o, "dead", a.Dead)
	if a.Failure != nil {
		o["error"] = a.Failure
	}
	if a.Headers != nil {
		o["headers"] = a.Headers
	}
	var r InboxLandRow
	err := one(ctx, db, "inbox.land",
		"select l.outcome, l.job_id, l.available_at from pawl_v1.inbox_land($1, $2, $3, $4, $5, $6::jsonb) as l",
		[]any{a.Consumer, a.MessageID, a.Queue, a.Kind, octets(a.Args), o.text()},
		&r.Outcome, &r.JobID, &r.AvailableAt)
	return r, err
}

// InboxSettle calls pawl_v1.inbox_settle.
func InboxSettle(ctx context.Context, db DB, consumer, messageID string, jobID int64) error {
	var outcome string
	return one(ctx, db, "inbox.settle", "select s.outcome from pawl_v1.inbox_settle($1, $2, $3) as s",
		[]any{consumer, messageID, jobID}, &outcome)
}
