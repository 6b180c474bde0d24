package contract

import (
	"context"
	"time"

	"github.com/pawl-go/pawl"
)

// EffectArgs name a step and what holds for it.
type EffectArgs struct {
	Owner       pawl.Owner
	Step        string
	Fingerprint pawl.Fingerprint
	Policy      string
	Provider    string
	ProviderKey string
	Timeout     time.Duration
	Memory      time.Duration // of the provider; 0: the default
	Settle      time.Duration
	TTL         time.Duration
}

// EffectBeginRow is the answer of effect_begin.
type EffectBeginRow struct {
	Outcome        string // "call", "probe", "wait", "replay_success", "final_failure" or "unknown"
	Fence          int64
	ProviderKey    string
	Left           time.Duration // until the last moment of sending, when the server answered
	RetryAfter     time.Duration
	Result         []byte
	Reference      string
	FailureCode    string
	FailureMessage string
	Calls          int
	Doubts         int // earlier calls of which nobody knows
}

// EffectBegin calls pawl_v1.effect_begin.
func EffectBegin(ctx context.Context, db DB, a EffectArgs) (r EffectBeginRow, err error) {
	o := Options{"policy": a.Policy, "provider_key": a.ProviderKey}
	set(o, "provider", a.Provider)
	set(o, "timeout_ms", a.Timeout.Milliseconds())
	set(o, "memory_ms", a.Memory.Milliseconds())
	set(o, "settle_ms", a.Settle.Milliseconds())
	set(o, "ttl_ms", a.TTL.Milliseconds())
	set(o, "job_id", a.Owner.JobID)
	var left, retry int64
	err = one(ctx, db, "effect.begin", `select b.outcome, coalesce(b.fence, 0), b.provider_key,
       coalesce(floor(extract(epoch from b.not_after - clock_timestamp()) * 1000), 0)::bigint, coalesce(b.retry_after_ms, 0)::bigint,
       b.result, coalesce(b.reference, ''), coalesce(b.failure_code, ''), coalesce(b.failure_message, ''), b.calls,
       coalesce((b.detail ->> 'again')::int, 0)
  from pawl_v1.effect_begin($1, $2, $3, $4, $5::jsonb) as b`,
		[]any{a.Owner.Scope, a.Owner.Key, a.Step, a.Fingerprint[:], o.text()},
		&r.Outcome, &r.Fence, &r.ProviderKey, &left, &retry, &r.Result, &r.Reference, &r.FailureCode, &r.FailureMessage, &r.Calls, &r.Doubts)
	r.Left, r.RetryAfter = time.Duration(left)*time.Millisecond, time.Duration(retry)*time.Millisecond
	return r, err
}

// EffectEndArgs say how a call or a probe ended.
type EffectEndArgs struct {
	Owner     pawl.Owner
	Step      string
	Fence     int64
	Outcome   string
	Result    []byte
	Reference string
	Failure   Failure
	Exchange  any // an object; nil: none
}

// EffectEndRow is the answer of effect_end.
type EffectEndRow struct {
	Status             string // "planned", "succeeded", "failed_final", "unknown" or "absent"
	Kept               bool   // the step had ended before
	Twice, Contradicts bool
}

// EffectEnd calls pawl_v1.effect_end.
func EffectEnd(ctx context.Context, db DB, a EffectEndArgs) (r EffectEndRow, err error) {
	o := Options{}
	set(o, "reference", a.Reference)
	set(o, "error", a.Failure.Error)
	set(o, "code", a.Failure.Code)
	set(o, "exchange", a.Exchange)
	err = one(ctx, db, "effect.end", `select e.outcome, e.detail ? 'kept', e.detail ? 'twice', e.detail ? 'contradicts'
  from pawl_v1.effect_end($1, $2, $3, $4, $5, $6, $7::jsonb) as e`,
		[]any{a.Owner.Scope, a.Owner.Key, a.Step, a.Fence, a.Outcome, a.Result, o.text()},
		&r.Status, &r.Kept, &r.Twice, &r.Contradicts)
	return r, err
}
