package contract

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
)

// CommandClaimArgs are the arguments of command_claim.
type CommandClaimArgs struct {
	Intent     pawl.Intent
	Lease      time.Duration // 0: the one-transaction form
	Retention  time.Duration
	Repeatable bool
	ClaimedBy  string
}

// CommandClaimRow is the answer of command_claim. Of an active command the rest may be zero.
type CommandClaimRow struct {
	Outcome         string // "new_claim", "processing_stale", "retryable_failure": ours; else somebody's answer
	Fence           int64
	Attempts        int
	RetryAfter      time.Duration
	ResponseStatus  int
	ResponseHeaders map[string][]string
	ResponseBody    []byte
	Result          []byte
	RefType, RefID  string
	FailureCode     string
	FailureMessage  string
	ClaimedBy       string // of an active command
	Unproved        bool   // see [Unproved]
	CreatedAt       time.Time
}

// Held reports whether the claim is the caller's.
func (r CommandClaimRow) Held() bool {
	return r.Outcome == "new_claim" || r.Outcome == "processing_stale" || r.Outcome == "retryable_failure"
}

// Calls that are sent on their own, and as steps of a transaction.
const commandSucceedSQL = "select s.outcome from pawl_v1.command_succeed($1, $2, $3, $4, $5, $6::pg_catalog.jsonb) as s"

const commandClaimSQL = `select c.outcome, coalesce(c.fence, 0), coalesce(c.attempts, 0), coalesce(c.retry_after_ms, 0),
       coalesce(c.response_status, 0), c.response_headers, c.response_body, c.result, coalesce(c.result_ref_type, ''),
       coalesce(c.result_ref_id, ''), coalesce(c.failure_code, ''), coalesce(c.failure_message, ''),
       coalesce(c.detail operator(pg_catalog.->>) 'claimed_by', ''),
       coalesce(c.created_at, pg_catalog.clock_timestamp()), c.detail operator(pg_catalog.?) 'unproved'
  from pawl_v1.command_claim($1, $2, $3, $4::pg_catalog.jsonb) as c`

func (a CommandClaimArgs) args() []any {
	o := Options{"lease_ms": nil}
	if a.Lease > 0 {
		o["lease_ms"] = a.Lease.Milliseconds()
	}
	set(o, "retention_ms", a.Retention.Milliseconds())
	set(o, "repeatable", a.Repeatable)
	set(o, "claimed_by", a.ClaimedBy)
	return []any{a.Intent.Scope, a.Intent.Key, a.Intent.Fingerprint[:], o.text()}
}

func (r *CommandClaimRow) scan(row interface{ Scan(...any) error }) error {
	var retryAfterMS int64
	var headers []byte
	err := row.Scan(&r.Outcome, &r.Fence, &r.Attempts, &retryAfterMS, &r.ResponseStatus, &headers, &r.ResponseBody,
		&r.Result, &r.RefType, &r.RefID, &r.FailureCode, &r.FailureMessage, &r.ClaimedBy, &r.CreatedAt, &r.Unproved)
	r.RetryAfter = time.Duration(retryAfterMS) * time.Millisecond
	if err == nil && headers != nil {
		err = json.Unmarshal(headers, &r.ResponseHeaders)
	}
	return pawl.Wrap("command.claim", err)
}

// CommandClaim calls pawl_v1.command_claim, without waiting for anybody.
func CommandClaim(ctx context.Context, db DB, a CommandClaimArgs) (r CommandClaimRow, err error) {
	err = r.scan(db.QueryRow(ctx, commandClaimSQL, a.args()...))
	return r, err
}

// CommandClaimStep is CommandClaim as a step.
func CommandClaimStep(a CommandClaimArgs, into *CommandClaimRow) Step {
	return func(b *pgx.Batch) {
		b.Queue(commandClaimSQL, a.args()...).QueryRow(func(row pgx.Row) error { return into.scan(row) })
	}
}

// CommandHold calls pawl_v1.command_hold.
func CommandHold(ctx context.Context, db DB, scope, key string, fence int64) error {
	var outcome string
	return one(ctx, db, "command.hold", "select h.outcome from pawl_v1.command_hold($1, $2, $3) as h", []any{scope, key, fence}, &outcome)
}

// CommandRenew calls pawl_v1.command_renew.
func CommandRenew(ctx context.Context, db DB, scope, key string, fence int64, lease time.Duration) error {
	o := Options{"lease_ms": lease.Milliseconds()}
	var outcome string
	return one(ctx, db, "command.renew", "select r.outcome from pawl_v1.command_renew($1, $2, $3, $4::pg_catalog.jsonb) as r",
		[]any{scope, key, fence, o.text()}, &outcome)
}

// CommandSucceedArgs are the arguments of command_succeed.
type CommandSucceedArgs struct {
	Scope, Key      string
	Fence           int64
	Result          []byte // nil: none
	ResponseStatus  int
	ResponseHeaders map[string][]string
	ResponseBody    []byte
	RefType, RefID  string
}

// CommandSucceed calls pawl_v1.command_succeed.
func CommandSucceed(ctx context.Context, db DB, a CommandSucceedArgs) error {
	return one(ctx, db, "command.succeed", commandSucceedSQL, a.args(), new(string))
}

// CommandSucceedStep is CommandSucceed as a step.
func CommandSucceedStep(a CommandSucceedArgs) Step {
	return step("command.succeed", commandSucceedSQL, a.args(), new(string))
}

func (a CommandSucceedArgs) args() []any {
	o := Options{}
	set(o, "response_status", a.ResponseStatus)
	set(o, "result_ref_type", a.RefType)
	set(o, "result_ref_id", a.RefID)
	if a.ResponseHeaders != nil {
		o["response_headers"] = a.ResponseHeaders
	}
	return []any{a.Scope, a.Key, a.Fence, a.Result, a.ResponseBody, o.text()}
}

// CommandFailArgs are the arguments of command_fail.
type CommandFailArgs struct {
	Intent         pawl.Intent
	Fence          int64
	Failure        Failure
	Final, Unknown bool
	Retention      time.Duration
}

// CommandFailRow is the answer of command_fail.
type CommandFailRow struct {
	Status   string // that the row holds now
	Attempts int
	Unproved bool // see [Unproved]
}

// CommandFail calls pawl_v1.command_fail.
func CommandFail(ctx context.Context, db DB, a CommandFailArgs) (r CommandFailRow, err error) {
	o := Options{}
	set(o, "final", a.Final)
	set(o, "unknown", a.Unknown)
	set(o, "retention_ms", a.Retention.Milliseconds())
	what := Options{"error": a.Failure.Error}
	set(what, "code", a.Failure.Code)
	err = one(ctx, db, "command.fail", "select f.outcome, f.attempts, f.detail operator(pg_catalog.?) 'unproved' from pawl_v1.command_fail($1, $2, $3, $4, $5::pg_catalog.jsonb, $6::pg_catalog.jsonb) as f",
		[]any{a.Intent.Scope, a.Intent.Key, a.Fence, a.Intent.Fingerprint[:], what.text(), o.text()}, &r.Status, &r.Attempts, &r.Unproved)
	return r, err
}

// CommandReplayed calls pawl_v1.command_replayed.
func CommandReplayed(ctx context.Context, db DB, scopes []string, counts []int64) error {
	var outcome string
	return one(ctx, db, "command.replayed", "select r.outcome from pawl_v1.command_replayed($1, $2) as r", []any{scopes, counts}, &outcome)
}

// CommandSettleArgs are the arguments of command_settle.
type CommandSettleArgs struct {
	Scope, Key             string
	Fence                  int64 // of the newest attempt that the verdict is about
	Executed               bool
	Result, RefType, RefID string
	Actor, Reason          string
}

// CommandSettleRow is the answer of command_settle.
type CommandSettleRow struct {
	Outcome string // "settled", "refused", "moved" or "absent"
	Status  string // now; empty if absent
	Fence   int64  // now, if it has moved
}

// CommandSettle calls pawl_v1.command_settle.
func CommandSettle(ctx context.Context, db DB, a CommandSettleArgs) (r CommandSettleRow, err error) {
	verdict := "not_executed"
	if a.Executed {
		verdict = "executed"
	}
	o := Options{}
	set(o, "result", a.Result)
	set(o, "result_ref_type", a.RefType)
	set(o, "result_ref_id", a.RefID)
	err = one(ctx, db, "command.settle", `select s.outcome, coalesce(s.detail operator(pg_catalog.->>) 'status', ''), coalesce((s.detail operator(pg_catalog.->>) 'fence')::bigint, 0)
  from pawl_v1.command_settle($1, $2, $3, $4, $5, $6, $7::pg_catalog.jsonb) as s`,
		[]any{a.Scope, a.Key, a.Fence, verdict, a.Actor, a.Reason, o.text()}, &r.Outcome, &r.Status, &r.Fence)
	return r, err
}
