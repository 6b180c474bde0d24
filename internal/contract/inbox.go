package contract

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
)

// CodeMismatch is the code in the error history of a delivery whose key was used before with
// another payload. stale_classify looks for it.
const CodeMismatch = "mismatch"

// InboxClaimRow is the result of inbox_claim.
type InboxClaimRow struct {
	// "processed": claimed; "behind": claimed, must be stored; "duplicate_ignored"; of
	// inbox_claim_many also "mismatch", "in_progress"
	Outcome     string
	ResultRef   *string
	JobID       *int64
	ReceivedAt  time.Time
	ProcessedAt *time.Time
	Hashes      InboxHashes // of a mismatch
	ReadOn      string      // see [watched.ReadOn]
}

// InboxHashes are the fingerprints of two payloads with the same message id, in hexadecimal.
type InboxHashes struct {
	Stored string `json:"stored_hash"`
	Given  string `json:"given_hash"`
}

// Scan implements sql.Scanner.
func (h *InboxHashes) Scan(detail any) error { return scanDetail(detail, h) }

const (
	inboxClaimSQL     = "select c.outcome, c.result_ref, c.job_id, c.received_at, c.processed_at, coalesce(c.detail operator(pg_catalog.->>) 'unreplicated', '') from pawl_v1.inbox_claim($1, $2, $3) as c"
	inboxClaimWithSQL = "select c.outcome, c.result_ref, c.job_id, c.received_at, c.processed_at, coalesce(c.detail operator(pg_catalog.->>) 'unreplicated', '') from pawl_v1.inbox_claim($1, $2, $3, $4::pg_catalog.jsonb) as c"
)

func (r *InboxClaimRow) columns() []any {
	return []any{&r.Outcome, &r.ResultRef, &r.JobID, &r.ReceivedAt, &r.ProcessedAt, &r.ReadOn}
}

// InboxLane is the lane of a delivery. An empty name means none.
type InboxLane struct{ Queue, Name, Policy string }

func inboxClaim(consumer, messageID string, hash pawl.Fingerprint, lane InboxLane) (sql string, args []any) {
	if lane.Name == "" {
		return inboxClaimSQL, []any{consumer, messageID, hash[:]}
	}
	o := Options{"lane": lane.Name, "queue": lane.Queue}
	set(o, "lane_policy", lane.Policy)
	return inboxClaimWithSQL, []any{consumer, messageID, hash[:], o.text()}
}

// InboxClaim calls pawl_v1.inbox_claim.
func InboxClaim(ctx context.Context, db DB, consumer, messageID string, hash pawl.Fingerprint, lane InboxLane) (r InboxClaimRow, err error) {
	sql, args := inboxClaim(consumer, messageID, hash, lane)
	err = one(ctx, db, "inbox.claim", sql, args, r.columns()...)
	return r, err
}

// InboxClaimFor calls pawl_v1.inbox_claim with a result_ref.
func InboxClaimFor(ctx context.Context, db DB, consumer, messageID string, hash pawl.Fingerprint, resultRef string) (r InboxClaimRow, err error) {
	err = one(ctx, db, "inbox.claim", inboxClaimWithSQL, []any{consumer, messageID, hash[:], Options{"result_ref": resultRef}.text()}, r.columns()...)
	return r, err
}

// InboxClaimStep is InboxClaim as a step.
func InboxClaimStep(consumer, messageID string, hash pawl.Fingerprint, lane InboxLane, r *InboxClaimRow) Step {
	sql, args := inboxClaim(consumer, messageID, hash, lane)
	return step("inbox.claim", sql, args, r.columns()...)
}

// InboxClaimManyStep calls pawl_v1.inbox_claim_many. Row i of the result belongs to intent i.
func InboxClaimManyStep(consumer string, intents []pawl.Intent, into func([]InboxClaimRow)) Step {
	const query = "select c.outcome, c.result_ref, c.job_id, c.received_at, c.processed_at, c.detail, coalesce(c.detail operator(pg_catalog.->>) 'unreplicated', '') from pawl_v1.inbox_claim_many($1, $2, $3) as c order by c.n"
	return steps("inbox.claim", query, []any{consumer, column(intents, func(i pawl.Intent) string { return i.Key }),
		column(intents, func(i pawl.Intent) []byte { return i.Fingerprint[:] })}, func(row pgx.CollectableRow) (r InboxClaimRow, err error) {
		var received *time.Time
		err = row.Scan(&r.Outcome, &r.ResultRef, &r.JobID, &received, &r.ProcessedAt, &r.Hashes, &r.ReadOn)
		if received != nil {
			r.ReceivedAt = *received
		}
		return r, err
	}, into)
}

// InboxStoreArgs are the arguments of inbox_store.
type InboxStoreArgs struct {
	Consumer, Key     string
	Queue, Kind       string
	Payload           []byte
	Headers           map[string]any
	Attempts, Crashes int
	MaxAttempts       int
	RetryIn           time.Duration
	Failure           *Failure
	Dead              bool
	Lane, LanePolicy  string
}

// InboxStoreRow is the result of inbox_store.
type InboxStoreRow struct {
	Outcome     string // "stored" or "dead_letter"
	JobID       int64
	AvailableAt time.Time
}

// InboxStore calls pawl_v1.inbox_store.
func InboxStore(ctx context.Context, db DB, a InboxStoreArgs) (InboxStoreRow, error) {
	o := Options{"attempts": a.Attempts}
	set(o, "crashes", a.Crashes)
	set(o, "max_attempts", a.MaxAttempts)
	set(o, "retry_in_ms", a.RetryIn.Milliseconds())
	set(o, "dead", a.Dead)
	set(o, "lane", a.Lane)
	set(o, "lane_policy", a.LanePolicy)
	if a.Failure != nil {
		o["error"] = a.Failure
	}
	if a.Headers != nil {
		o["headers"] = a.Headers
	}
	// Not exact: a webhook's header may be Latin-1, and a delivery that is not stored is
	// redelivered until the sender gives up. Keys are separate arguments and stay exact.
	var r InboxStoreRow
	err := one(ctx, db, "inbox.store",
		"select l.outcome, l.job_id, l.available_at from pawl_v1.inbox_store($1, $2, $3, $4, $5, $6::pg_catalog.jsonb) as l",
		[]any{a.Consumer, a.Key, a.Queue, a.Kind, octets(a.Payload), o.text()},
		&r.Outcome, &r.JobID, &r.AvailableAt)
	return r, err
}

// InboxSettle calls pawl_v1.inbox_settle.
func InboxSettle(ctx context.Context, db DB, consumer, messageID string, jobID int64) error {
	var outcome string
	return one(ctx, db, "inbox.settle", "select s.outcome from pawl_v1.inbox_settle($1, $2, $3) as s",
		[]any{consumer, messageID, jobID}, &outcome)
}

// InboxReserveRow is the result of inbox_reserve.
type InboxReserveRow struct {
	Outcome string // "reserved", or "in_progress"
	JobID   int64  // the job that holds the reservation
	Status  string // of that job, if it is in progress
}

// InboxReserve calls pawl_v1.inbox_reserve.
func InboxReserve(ctx context.Context, db DB, consumer, key string, hash pawl.Fingerprint, jobID int64) (r InboxReserveRow, err error) {
	err = one(ctx, db, "inbox.reserve", "select r.outcome, r.job_id, coalesce(r.detail operator(pg_catalog.->>) 'status', '') from pawl_v1.inbox_reserve($1, $2, $3, $4) as r",
		[]any{consumer, key, hash[:], jobID}, &r.Outcome, &r.JobID, &r.Status)
	return r, err
}

// InboxUnreserve calls pawl_v1.inbox_unreserve.
func InboxUnreserve(ctx context.Context, db DB, consumer, key string, jobID int64) error {
	var outcome string
	return one(ctx, db, "inbox.unreserve", "select u.outcome from pawl_v1.inbox_unreserve($1, $2, $3) as u", []any{consumer, key, jobID}, &outcome)
}

// InboxForgetRow is the result of inbox_forget.
type InboxForgetRow struct {
	Outcome string // "forgotten", "refused", "absent"
	Job     *int64 // owner of the delivery, if refused
	Status  string // of that job
	Hint    string
}

// InboxForget calls pawl_v1.inbox_forget.
func InboxForget(ctx context.Context, db DB, consumer, messageID string, processedAt *time.Time, actor, reason string) (r InboxForgetRow, err error) {
	o := Options{}
	if processedAt != nil {
		o["processed_at"] = nil
		if !processedAt.IsZero() {
			o["processed_at"] = processedAt.UTC().Format(time.RFC3339Nano)
		}
	}
	err = one(ctx, db, "inbox.forget", `select f.outcome, (f.detail operator(pg_catalog.->>) 'job')::bigint, coalesce(f.detail operator(pg_catalog.->>) 'status', ''), coalesce(f.detail operator(pg_catalog.->>) 'hint', '')
  from pawl_v1.inbox_forget($1, $2, $3, $4, $5::pg_catalog.jsonb) as f`, []any{consumer, messageID, actor, reason, o.text()}, &r.Outcome, &r.Job, &r.Status, &r.Hint)
	return r, err
}

// InboxReplayRow is the result of inbox_replay.
type InboxReplayRow struct {
	Outcome     string     // "replayed", "refused", "absent"
	Job         *int64     // owner of the delivery
	Status      string     // status of that job before the call; empty if it is new
	ProcessedAt *time.Time // when it took effect, if refused
	Hint        string
}

// InboxReplay calls pawl_v1.inbox_replay.
func InboxReplay(ctx context.Context, db DB, consumer, messageID, actor, reason string) (r InboxReplayRow, err error) {
	err = one(ctx, db, "inbox.replay", `select r.outcome, r.job_id, coalesce(r.detail operator(pg_catalog.->>) 'status', ''), (r.detail operator(pg_catalog.->>) 'processed_at')::pg_catalog.timestamptz, coalesce(r.detail operator(pg_catalog.->>) 'hint', '')
  from pawl_v1.inbox_replay($1, $2, $3, $4) as r`, []any{consumer, messageID, actor, reason}, &r.Outcome, &r.Job, &r.Status, &r.ProcessedAt, &r.Hint)
	return r, err
}

// ConsumerReportRow is the result of consumer_report.
type ConsumerReportRow struct {
	Holds          time.Duration // 0 is forever
	ForgottenUntil time.Time     // zero: nothing was forgotten yet
}

// ConsumerReport calls pawl_v1.consumer_report. A window of 0 is forever, and a horizon of 0 is
// unknown.
func ConsumerReport(ctx context.Context, db DB, consumer string, window, horizon time.Duration) (r ConsumerReportRow, err error) {
	o := Options{}
	set(o, "horizon_ms", horizon.Milliseconds())
	var asked, answered *int64
	if ms := window.Milliseconds(); window > 0 {
		asked = &ms
	}
	var until *time.Time
	err = one(ctx, db, "inbox.report", `select r.window_ms, (r.detail operator(pg_catalog.->>) 'forgotten_until')::pg_catalog.timestamptz
  from pawl_v1.consumer_report($1, $2, $3::pg_catalog.jsonb) as r`, []any{consumer, asked, o.text()}, &answered, &until)
	if answered != nil {
		r.Holds = time.Duration(*answered) * time.Millisecond
	}
	if until != nil {
		r.ForgottenUntil = *until
	}
	return r, err
}

// InboxMemory calls pawl_v1.inbox_memory. It returns the time up to which the consumer has
// forgotten deliveries, or zero.
func InboxMemory(ctx context.Context, db DB, consumer string) (until time.Time, err error) {
	var answered *time.Time
	err = one(ctx, db, "inbox.memory", "select m.forgotten_until from pawl_v1.inbox_memory($1) as m", []any{consumer}, &answered)
	if answered != nil {
		until = *answered
	}
	return until, err
}
