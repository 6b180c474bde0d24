package contract

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"math"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/watched"
)

// CommandClaimArgs are the arguments of command_claim.
type CommandClaimArgs struct {
	Intent     pawl.Intent
	Lease      time.Duration
	Retention  time.Duration
	Repeatable bool
	ClaimedBy  string
}

// CommandRow is the result of command_open, command_claim and CommandLook. For an active command,
// the other fields may be zero.
type CommandRow struct {
	// "new_claim", "processing_stale", "retryable_failure": the caller holds it; else the outcome
	// of another claim
	Outcome         string
	Fence           int64
	Xact            string // of command_open: the transaction id, for command_close
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
	ReadOn          string // see [watched.ReadOn]
	CreatedAt       time.Time
}

// Held reports whether the caller holds the claim.
func (r CommandRow) Held() bool {
	return r.Outcome == "new_claim" || r.Outcome == "processing_stale" || r.Outcome == "retryable_failure"
}

// Seen reports whether [CommandLook] would have found the row.
func (r CommandRow) Seen() bool {
	switch r.Outcome {
	case "replay_success", "final_failure", "mismatch":
		return true
	}
	return r.Outcome == "processing_active" && r.Fence > 0
}

// commandColumns lists the columns that all three return.
const commandColumns = `c.outcome, coalesce(c.fence, 0), coalesce(c.attempts, 0), coalesce(c.response_status, 0), c.response_headers,
       c.response_body, c.result, coalesce(c.result_ref_type, ''), coalesce(c.result_ref_id, ''), coalesce(c.failure_code, ''),
       coalesce(c.failure_message, ''), coalesce(c.created_at, pg_catalog.clock_timestamp()), `

func (r *CommandRow) scan(row interface{ Scan(...any) error }, more ...any) error {
	var headers []byte
	err := row.Scan(append([]any{&r.Outcome, &r.Fence, &r.Attempts, &r.ResponseStatus, &headers, &r.ResponseBody,
		&r.Result, &r.RefType, &r.RefID, &r.FailureCode, &r.FailureMessage, &r.CreatedAt, &r.ReadOn}, more...)...)
	if err == nil && headers != nil {
		err = json.Unmarshal(headers, &r.ResponseHeaders)
	}
	return pawl.Wrap("command.claim", err)
}

const commandLookSQL = "select " + commandColumns + watched.ReadOn + `
  from (
    select case when l.hash::pg_catalog.bytea operator(pg_catalog.<>) $3::pg_catalog.bytea then 'mismatch'
                when l.status operator(pg_catalog.=) 'succeeded' then 'replay_success'
                when l.status operator(pg_catalog.=) 'failed_final' then 'final_failure'
                when l.status operator(pg_catalog.=) 'processing'
                 and l.lease_expires_at operator(pg_catalog.>) pg_catalog.clock_timestamp() then 'processing_active'
           end as outcome, l.*
      from pawl.command as l
     where l.scope operator(pg_catalog.=) $1::pg_catalog.text
       and l.key operator(pg_catalog.=) $2::pg_catalog.text) as c
 where c.outcome is not null
   and not pg_catalog.pg_is_in_recovery()`

// CommandLook reads a row whose answer no claim can change: a stored answer, another payload, a
// running lease. It calls no function and does not wait. A standby returns nothing, because the
// standby that gets promoted may lack the row.
func CommandLook(ctx context.Context, db DB, i pawl.Intent) (r CommandRow, found bool, err error) {
	err = r.scan(db.QueryRow(ctx, commandLookSQL, i.Scope, i.Key, i.Fingerprint[:]))
	if errors.Is(err, pgx.ErrNoRows) || errors.Is(err, sql.ErrNoRows) {
		return r, false, nil
	}
	return r, err == nil, err
}

const commandOpenSQL = "select " + commandColumns + `coalesce(c.detail operator(pg_catalog.->>) 'unreplicated', ''), coalesce(c.xact, ''), coalesce(c.retry_after_ms, 0)
  from pawl_v1.command_open($1, $2, $3, $4) as c`

// CommandOpen calls pawl_v1.command_open, which does not wait for other claims. The server ends the
// transaction after it was idle for idle.
func CommandOpen(ctx context.Context, db DB, i pawl.Intent, idle time.Duration) (r CommandRow, err error) {
	err = scanned(ctx, db, "command.claim", commandOpenSQL, openArgs(i, idle), func(row pgx.Row) error { return r.opened(row) })
	return r, err
}

// CommandOpenStep is CommandOpen as a step.
func CommandOpenStep(i pawl.Intent, idle time.Duration, into *CommandRow) Step {
	return func(b *pgx.Batch) {
		b.Queue(commandOpenSQL, openArgs(i, idle)...).QueryRow(func(row pgx.Row) error { return into.opened(row) })
	}
}

func openArgs(i pawl.Intent, idle time.Duration) []any {
	return []any{i.Scope, i.Key, i.Fingerprint[:], int32(min(idle.Milliseconds(), math.MaxInt32))}
}

func (r *CommandRow) opened(row interface{ Scan(...any) error }) error {
	var retryAfterMS int64
	err := r.scan(row, &r.Xact, &retryAfterMS)
	r.RetryAfter = time.Duration(retryAfterMS) * time.Millisecond
	return err
}

// CommandCloseArgs are the arguments of command_close. Fence and Xact come from command_open.
type CommandCloseArgs struct {
	Intent    pawl.Intent
	Fence     int64
	Xact      string
	Retention time.Duration
	Answer    CommandAnswer
}

// CommandAnswer is the stored answer of a success.
type CommandAnswer struct {
	Result          []byte // nil: none
	ResponseStatus  int
	ResponseHeaders map[string][]string
	ResponseBody    []byte
	RefType, RefID  string
}

func (a CommandAnswer) options() Options {
	o := Options{}
	set(o, "response_status", a.ResponseStatus)
	set(o, "result_ref_type", a.RefType)
	set(o, "result_ref_id", a.RefID)
	if a.ResponseHeaders != nil {
		o["response_headers"] = a.ResponseHeaders
	}
	return o
}

const commandCloseSQL = "select s.outcome from pawl_v1.command_close($1, $2, $3, $4, $5, $6, $7, $8::pg_catalog.jsonb) as s"

// CommandClose calls pawl_v1.command_close.
func CommandClose(ctx context.Context, db DB, a CommandCloseArgs) error {
	return one(ctx, db, "command.succeed", commandCloseSQL, a.args(), new(string))
}

// CommandCloseStep is CommandClose as a step.
func CommandCloseStep(a CommandCloseArgs) Step {
	return step("command.succeed", commandCloseSQL, a.args(), new(string))
}

func (a CommandCloseArgs) args() []any {
	o := a.Answer.options()
	set(o, "retention_ms", a.Retention.Milliseconds())
	return []any{a.Intent.Scope, a.Intent.Key, a.Intent.Fingerprint[:], a.Fence, a.Xact, a.Answer.Result, a.Answer.ResponseBody, o.text()}
}

const commandClaimSQL = "select " + commandColumns + `coalesce(c.detail operator(pg_catalog.->>) 'unreplicated', ''), coalesce(c.retry_after_ms, 0),
       coalesce(c.detail operator(pg_catalog.->>) 'claimed_by', '')
  from pawl_v1.command_claim($1, $2, $3, $4::pg_catalog.jsonb) as c`

// CommandClaim calls pawl_v1.command_claim, which does not wait for other claims.
func CommandClaim(ctx context.Context, db DB, a CommandClaimArgs) (r CommandRow, err error) {
	o := Options{"lease_ms": a.Lease.Milliseconds()}
	set(o, "retention_ms", a.Retention.Milliseconds())
	set(o, "repeatable", a.Repeatable)
	set(o, "claimed_by", a.ClaimedBy)
	var retryAfterMS int64
	args := []any{a.Intent.Scope, a.Intent.Key, a.Intent.Fingerprint[:], o.text()}
	err = scanned(ctx, db, "command.claim", commandClaimSQL, args, func(row pgx.Row) error { return r.scan(row, &retryAfterMS, &r.ClaimedBy) })
	r.RetryAfter = time.Duration(retryAfterMS) * time.Millisecond
	return r, err
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
	Scope, Key string
	Fence      int64
	Answer     CommandAnswer
}

// CommandSucceed calls pawl_v1.command_succeed.
func CommandSucceed(ctx context.Context, db DB, a CommandSucceedArgs) error {
	return one(ctx, db, "command.succeed", "select s.outcome from pawl_v1.command_succeed($1, $2, $3, $4, $5, $6::pg_catalog.jsonb) as s",
		[]any{a.Scope, a.Key, a.Fence, a.Answer.Result, a.Answer.ResponseBody, a.Answer.options().text()}, new(string))
}

// CommandFailArgs are the arguments of command_fail.
type CommandFailArgs struct {
	Intent         pawl.Intent
	Fence          int64
	Failure        Failure
	Final, Unknown bool
	Retention      time.Duration
}

// CommandFailRow is the result of command_fail.
type CommandFailRow struct {
	Status   string // of the row after the call
	Attempts int
	ReadOn   string // see [watched.ReadOn]
}

// CommandFail calls pawl_v1.command_fail.
func CommandFail(ctx context.Context, db DB, a CommandFailArgs) (r CommandFailRow, err error) {
	o := Options{}
	set(o, "final", a.Final)
	set(o, "unknown", a.Unknown)
	set(o, "retention_ms", a.Retention.Milliseconds())
	what := Options{"error": a.Failure.Error}
	set(what, "code", a.Failure.Code)
	err = one(ctx, db, "command.fail", "select f.outcome, f.attempts, coalesce(f.detail operator(pg_catalog.->>) 'unreplicated', '') from pawl_v1.command_fail($1, $2, $3, $4, $5::pg_catalog.jsonb, $6::pg_catalog.jsonb) as f",
		[]any{a.Intent.Scope, a.Intent.Key, a.Fence, a.Intent.Fingerprint[:], what.text(), o.text()}, &r.Status, &r.Attempts, &r.ReadOn)
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
	Fence                  int64 // of the newest attempt that the verdict concerns
	Executed               bool
	Result, RefType, RefID string
	Actor, Reason          string
}

// CommandSettleRow is the result of command_settle.
type CommandSettleRow struct {
	Outcome string // "settled", "refused", "moved" or "absent"
	Status  string // current status; empty if absent
	Fence   int64  // current fence, if moved
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
