package contract

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

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
	Doubts         int  // earlier calls of which nobody knows
	Unproved       bool // see [Unproved]
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
       coalesce(pg_catalog.floor(extract(epoch from b.not_after operator(pg_catalog.-) pg_catalog.clock_timestamp()) operator(pg_catalog.*) 1000), 0)::bigint, coalesce(b.retry_after_ms, 0)::bigint,
       b.result, coalesce(b.reference, ''), coalesce(b.failure_code, ''), coalesce(b.failure_message, ''), b.calls,
       coalesce((b.detail operator(pg_catalog.->>) 'again')::int, 0), b.detail operator(pg_catalog.?) 'unproved'
  from pawl_v1.effect_begin($1, $2, $3, $4, $5::pg_catalog.jsonb) as b`,
		[]any{a.Owner.Scope, a.Owner.Key, a.Step, a.Fingerprint[:], o.exact()},
		&r.Outcome, &r.Fence, &r.ProviderKey, &left, &retry, &r.Result, &r.Reference, &r.FailureCode, &r.FailureMessage, &r.Calls, &r.Doubts, &r.Unproved)
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
	Exchange  any  // an object; nil: none
	Keyless   bool // the call of a keyed step carried no key
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
	if a.Keyless {
		o["keyless"] = true
	}
	// Not exact: what a provider answers may be any octets, and a call that landed must be recorded as landed.
	err = one(ctx, db, "effect.end", `select e.outcome, e.detail operator(pg_catalog.?) 'kept', e.detail operator(pg_catalog.?) 'twice', e.detail operator(pg_catalog.?) 'contradicts'
  from pawl_v1.effect_end($1, $2, $3, $4, $5, $6, $7::pg_catalog.jsonb) as e`,
		[]any{a.Owner.Scope, a.Owner.Key, a.Step, a.Fence, a.Outcome, a.Result, o.text()},
		&r.Status, &r.Kept, &r.Twice, &r.Contradicts)
	return r, err
}

// EffectSettleArgs are a verdict on an unknown step.
type EffectSettleArgs struct {
	Scope, Key, Step  string
	Fence             int64  // of the newest call that the verdict is about
	Verdict           string // "landed", "refused" or "not_landed"
	Actor, Reason     string
	Result, Reference string // of what landed
	Code, Error       string // of a refusal
}

// EffectSettleRow is the answer of effect_settle.
type EffectSettleRow struct {
	Outcome    string        // "settled", "refused", "moved", "early" or "absent"
	Status     string        // now; of a refusal, what it is; empty if absent
	Fence      int64         // now, if it has moved
	RetryAfter time.Duration // if it is early
}

// EffectSettle calls pawl_v1.effect_settle.
func EffectSettle(ctx context.Context, db DB, a EffectSettleArgs) (r EffectSettleRow, err error) {
	o := Options{}
	set(o, "result", a.Result)
	set(o, "reference", a.Reference)
	set(o, "code", a.Code)
	set(o, "error", a.Error)
	var retry int64
	err = one(ctx, db, "effect.settle", `select s.outcome, coalesce(s.detail operator(pg_catalog.->>) 'status', ''), coalesce((s.detail operator(pg_catalog.->>) 'fence')::bigint, 0),
       coalesce((s.detail operator(pg_catalog.->>) 'retry_after_ms')::bigint, 0)
  from pawl_v1.effect_settle($1, $2, $3, $4, $5, $6, $7, $8::pg_catalog.jsonb) as s`,
		[]any{a.Scope, a.Key, a.Step, a.Fence, a.Verdict, a.Actor, a.Reason, o.exact()}, &r.Outcome, &r.Status, &r.Fence, &retry)
	r.RetryAfter = time.Duration(retry) * time.Millisecond
	return r, err
}

// EffectAgainArgs have a refused step called again under a new key.
type EffectAgainArgs struct {
	Scope, Key, Step string
	Fence            int64 // of the step
	ProviderKey      string
	Actor, Reason    string
	DryRun           bool
}

// EffectAgainRow is the answer of effect_again.
type EffectAgainRow struct {
	Outcome     string // "renewed", "would_renew"; "refused", "moved", "early" or "absent"
	Status      string // if nothing changed; empty if absent
	Landed      bool   // refused: a call of it landed
	Fence       int64  // now, if it has moved
	RetryAfter  time.Duration
	ProviderKey string // from now on
	JobID       int64  // that it belongs to; 0: none
	Calls       int
}

// EffectAgain calls pawl_v1.effect_again.
func EffectAgain(ctx context.Context, db DB, a EffectAgainArgs) (r EffectAgainRow, err error) {
	o := Options{}
	set(o, "provider_key", a.ProviderKey)
	if a.DryRun {
		o["dry_run"] = true
	}
	var retry int64
	err = one(ctx, db, "effect.again", `select s.outcome, coalesce(s.detail operator(pg_catalog.->>) 'status', ''), s.detail operator(pg_catalog.?) 'landed', coalesce((s.detail operator(pg_catalog.->>) 'fence')::bigint, 0),
       coalesce((s.detail operator(pg_catalog.->>) 'retry_after_ms')::bigint, 0), coalesce(s.detail operator(pg_catalog.->>) 'provider_key', ''), coalesce((s.detail operator(pg_catalog.->>) 'job')::bigint, 0),
       coalesce((s.detail operator(pg_catalog.->>) 'calls')::int, 0)
  from pawl_v1.effect_again($1, $2, $3, $4, $5, $6, $7::pg_catalog.jsonb) as s`,
		[]any{a.Scope, a.Key, a.Step, a.Fence, a.Actor, a.Reason, o.exact()},
		&r.Outcome, &r.Status, &r.Landed, &r.Fence, &retry, &r.ProviderKey, &r.JobID, &r.Calls)
	r.RetryAfter = time.Duration(retry) * time.Millisecond
	return r, err
}

// EffectRow is one row of pawl_v1.effects.
type EffectRow struct {
	Scope, Key, Step                string
	Status, Policy                  string
	Fence                           int64
	Provider                        *string
	ProviderKey                     string
	Reference                       *string
	JobID                           *int64
	Calls, InDoubt                  int
	FirstCalledAt, LastNotAfter     *time.Time
	MemoryEndsAt                    *time.Time
	FailureCode, FailureMessage     *string
	CreatedAt, UpdatedAt, ExpiresAt time.Time
	ReadAt                          time.Time // the database's clock
}

// EffectListArgs select rows of pawl_v1.effects; a zero field selects all.
type EffectListArgs struct {
	Scope, Key, Step string // with all three: one step
	Providers        []string
	Statuses         []string
	After            [3]string // scope, key and step of the last row before
	Limit            int
}

// EffectList reads pawl_v1.effects in the order of scope, key and step.
func EffectList(ctx context.Context, db DB, a EffectListArgs) ([]EffectRow, error) {
	where, args := []string{"(e.scope, e.key, e.step) > ($1, $2, $3)"}, []any{a.After[0], a.After[1], a.After[2]}
	only := func(condition string, value any) {
		args = append(args, value)
		where = append(where, fmt.Sprintf(condition, len(args)))
	}
	for column, value := range map[string]string{"scope": a.Scope, "key": a.Key, "step": a.Step} {
		if value != "" {
			only("e."+column+" = $%d", value)
		}
	}
	if len(a.Providers) > 0 {
		only("e.provider = any ($%d)", a.Providers)
	}
	switch {
	case slices.Equal(a.Statuses, []string{"unknown"}):
		where = append(where, "e.status = 'unknown'") // a literal: for effect_unknown
	case len(a.Statuses) > 0:
		only("e.status = any ($%d)", a.Statuses)
	}
	args = append(args, a.Limit)
	query := fmt.Sprintf(`select `+effectColumns+`
  from pawl_v1.effects as e
 where %s
 order by e.scope, e.key, e.step
 limit $%d`, strings.Join(where, "\n   and "), len(args))
	return Look(ctx, db, "effect.list", query, args, effectRow)
}

const effectColumns = `e.scope, e.key, e.step, e.status, e.fence, e.policy, e.provider, e.provider_key, e.reference, e.job_id, e.calls, e.in_doubt,
       e.first_called_at, e.last_not_after, e.memory_ends_at, e.failure_code, e.failure_message, e.created_at, e.updated_at, e.expires_at,
       pg_catalog.clock_timestamp()`

func effectRow(row pgx.CollectableRow) (r EffectRow, err error) {
	err = row.Scan(&r.Scope, &r.Key, &r.Step, &r.Status, &r.Fence, &r.Policy, &r.Provider, &r.ProviderKey, &r.Reference, &r.JobID, &r.Calls, &r.InDoubt,
		&r.FirstCalledAt, &r.LastNotAfter, &r.MemoryEndsAt, &r.FailureCode, &r.FailureMessage, &r.CreatedAt, &r.UpdatedAt, &r.ExpiresAt,
		&r.ReadAt)
	return r, err
}

// EffectsOfJob reads the steps of a job that has not finished, in the order of their names, at most limit.
func EffectsOfJob(ctx context.Context, db DB, id int64, limit int) ([]EffectRow, error) {
	return Look(ctx, db, "effect.list", `select `+effectColumns+`
  from pawl.job as j
 cross join lateral pawl_v1._steps_of_job(j) as s
  join pawl_v1.effects as e on e.scope = s.scope and e.key = s.key and e.step = s.step
 where j.id = $1
 order by e.step
 limit $2`, []any{id, limit}, effectRow)
}

// EffectCallRow is one row of pawl.effect_call.
type EffectCallRow struct {
	Fence               int64
	Probe               bool
	StartedAt, NotAfter time.Time
	EndedAt             *time.Time
	Outcome, Reference  *string
	Detail              json.RawMessage
}

// EffectCalls reads the calls of a step, oldest first, the newest so many of them.
func EffectCalls(ctx context.Context, db DB, scope, key, step string, limit int) ([]EffectCallRow, error) {
	return Look(ctx, db, "effect.calls", `select n.fence, n.probe, n.started_at, n.not_after, n.ended_at, n.outcome, n.reference, n.detail
  from (
    select c.fence, c.probe, c.started_at, c.not_after, c.ended_at, c.outcome, c.reference, c.detail
      from pawl.effect_call as c
     where c.scope = $1
       and c.key = $2
       and c.step = $3
     order by c.fence desc
     limit $4
  ) as n
 order by n.fence`, []any{scope, key, step, limit}, func(row pgx.CollectableRow) (r EffectCallRow, err error) {
		err = row.Scan(&r.Fence, &r.Probe, &r.StartedAt, &r.NotAfter, &r.EndedAt, &r.Outcome, &r.Reference, &r.Detail)
		return r, err
	})
}
