package contract

import (
	"context"
	"time"

	"github.com/pawl-go/pawl"
)

// StepArgs name a step and its settings.
type StepArgs struct {
	Owner       pawl.Owner
	Step        string
	Fingerprint pawl.Fingerprint
	Recovery    string
	Provider    string
	ProviderKey string
	Timeout     time.Duration
	Memory      time.Duration // how long the provider remembers keys; 0: the default
	Settle      time.Duration
	Retention   time.Duration
}

// StepBeginRow is the result of step_begin.
type StepBeginRow struct {
	Outcome     string // "call", "probe", "wait", "replay_success", "final_failure" or "unknown"
	Fence       int64
	ProviderKey string
	// until the latest time to send the request, when the server answered
	Left           time.Duration
	RetryAfter     time.Duration
	Result         []byte
	Reference      string
	FailureCode    string
	FailureMessage string
	Calls          int
	Doubts         int    // earlier calls with an unknown outcome
	ReadOn         string // see [watched.ReadOn]
}

// StepBegin calls pawl_v1.step_begin.
func StepBegin(ctx context.Context, db DB, a StepArgs) (r StepBeginRow, err error) {
	o := Options{"recovery": a.Recovery, "provider_key": a.ProviderKey}
	set(o, "provider", a.Provider)
	set(o, "timeout_ms", a.Timeout.Milliseconds())
	set(o, "memory_ms", a.Memory.Milliseconds())
	set(o, "settle_ms", a.Settle.Milliseconds())
	set(o, "retention_ms", a.Retention.Milliseconds())
	set(o, "job_id", a.Owner.JobID)
	var left, retry int64
	err = one(ctx, db, "step.begin", `select b.outcome, coalesce(b.fence, 0), b.provider_key,
       coalesce(pg_catalog.floor(extract(epoch from b.not_after operator(pg_catalog.-) pg_catalog.clock_timestamp()) operator(pg_catalog.*) 1000), 0)::bigint, coalesce(b.retry_after_ms, 0)::bigint,
       b.result, coalesce(b.reference, ''), coalesce(b.failure_code, ''), coalesce(b.failure_message, ''), b.calls,
       coalesce((b.detail operator(pg_catalog.->>) 'again')::int, 0), coalesce(b.detail operator(pg_catalog.->>) 'unreplicated', '')
  from pawl_v1.step_begin($1, $2, $3, $4, $5::pg_catalog.jsonb) as b`,
		[]any{a.Owner.Scope, a.Owner.Key, a.Step, a.Fingerprint[:], o.exact()},
		&r.Outcome, &r.Fence, &r.ProviderKey, &left, &retry, &r.Result, &r.Reference, &r.FailureCode, &r.FailureMessage, &r.Calls, &r.Doubts, &r.ReadOn)
	r.Left, r.RetryAfter = time.Duration(left)*time.Millisecond, time.Duration(retry)*time.Millisecond
	return r, err
}

// StepEndArgs describe the end of a call or a probe.
type StepEndArgs struct {
	Owner     pawl.Owner
	Step      string
	Fence     int64
	Outcome   string
	Result    []byte
	Reference string
	Failure   Failure
	Exchange  any  // an object; nil: none
	Keyless   bool // the call of a keyed step was sent without a key
}

// StepEndRow is the result of step_end.
type StepEndRow struct {
	Status             string // "planned", "succeeded", "failed_final", "unknown" or "absent"
	Kept               bool   // the step had ended before
	Twice, Contradicts bool
}

// StepEnd calls pawl_v1.step_end.
func StepEnd(ctx context.Context, db DB, a StepEndArgs) (r StepEndRow, err error) {
	o := Options{}
	set(o, "reference", a.Reference)
	set(o, "error", a.Failure.Error)
	set(o, "code", a.Failure.Code)
	set(o, "exchange", a.Exchange)
	if a.Keyless {
		o["keyless"] = true
	}
	// Not exact: a provider may answer any bytes, and an executed call must be recorded as
	// executed.
	err = one(ctx, db, "step.end", `select e.outcome, e.detail operator(pg_catalog.?) 'kept', e.detail operator(pg_catalog.?) 'twice', e.detail operator(pg_catalog.?) 'contradicts'
  from pawl_v1.step_end($1, $2, $3, $4, $5, $6, $7::pg_catalog.jsonb) as e`,
		[]any{a.Owner.Scope, a.Owner.Key, a.Step, a.Fence, a.Outcome, a.Result, o.text()},
		&r.Status, &r.Kept, &r.Twice, &r.Contradicts)
	return r, err
}

// StepSettleArgs hold a verdict on an unknown step.
type StepSettleArgs struct {
	Scope, Key, Step  string
	Fence             int64  // of the newest call that the verdict concerns
	Verdict           string // "executed", "refused" or "not_executed"
	Actor, Reason     string
	Result, Reference string // of an executed call
	Code, Error       string // of a refusal
}

// StepSettleRow is the result of step_settle.
type StepSettleRow struct {
	Outcome    string        // "settled", "refused", "moved", "early" or "absent"
	Status     string        // current status, also if refused; empty if absent
	Fence      int64         // current fence, if moved
	RetryAfter time.Duration // if early
}

// StepSettle calls pawl_v1.step_settle.
func StepSettle(ctx context.Context, db DB, a StepSettleArgs) (r StepSettleRow, err error) {
	o := Options{}
	set(o, "result", a.Result)
	set(o, "reference", a.Reference)
	set(o, "code", a.Code)
	set(o, "error", a.Error)
	var retry int64
	err = one(ctx, db, "step.settle", `select s.outcome, coalesce(s.detail operator(pg_catalog.->>) 'status', ''), coalesce((s.detail operator(pg_catalog.->>) 'fence')::bigint, 0),
       coalesce((s.detail operator(pg_catalog.->>) 'retry_after_ms')::bigint, 0)
  from pawl_v1.step_settle($1, $2, $3, $4, $5, $6, $7, $8::pg_catalog.jsonb) as s`,
		[]any{a.Scope, a.Key, a.Step, a.Fence, a.Verdict, a.Actor, a.Reason, o.exact()}, &r.Outcome, &r.Status, &r.Fence, &retry)
	r.RetryAfter = time.Duration(retry) * time.Millisecond
	return r, err
}

// StepAgainArgs request another call of a refused step under a new key.
type StepAgainArgs struct {
	Scope, Key, Step string
	Fence            int64 // of the step
	ProviderKey      string
	Actor, Reason    string
}

// StepAgainRow is the result of step_again.
type StepAgainRow struct {
	Outcome     string // "renewed"; "refused", "moved", "early" or "absent"
	Status      string // if nothing changed; empty if absent
	Executed    bool   // refused: one of its calls was executed
	Fence       int64  // current fence, if moved
	RetryAfter  time.Duration
	ProviderKey string // the new key
	JobID       int64  // owner of the step; 0: none
	Calls       int
}

// StepAgain calls pawl_v1.step_again.
func StepAgain(ctx context.Context, db DB, a StepAgainArgs) (r StepAgainRow, err error) {
	o := Options{}
	set(o, "provider_key", a.ProviderKey)
	var retry int64
	err = one(ctx, db, "step.again", `select s.outcome, coalesce(s.detail operator(pg_catalog.->>) 'status', ''), s.detail operator(pg_catalog.?) 'executed', coalesce((s.detail operator(pg_catalog.->>) 'fence')::bigint, 0),
       coalesce((s.detail operator(pg_catalog.->>) 'retry_after_ms')::bigint, 0), coalesce(s.detail operator(pg_catalog.->>) 'provider_key', ''), coalesce((s.detail operator(pg_catalog.->>) 'job')::bigint, 0),
       coalesce((s.detail operator(pg_catalog.->>) 'calls')::int, 0)
  from pawl_v1.step_again($1, $2, $3, $4, $5, $6, $7::pg_catalog.jsonb) as s`,
		[]any{a.Scope, a.Key, a.Step, a.Fence, a.Actor, a.Reason, o.exact()},
		&r.Outcome, &r.Status, &r.Executed, &r.Fence, &retry, &r.ProviderKey, &r.JobID, &r.Calls)
	r.RetryAfter = time.Duration(retry) * time.Millisecond
	return r, err
}
