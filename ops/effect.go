package ops

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/contract"
)

// An EffectStatus is where a step stands: a call of somebody else's system, of package effect.
type EffectStatus string

// The statuses of a step.
const (
	EffectPlanned     EffectStatus = "planned" // it may be called, or was and nobody said how that ended
	EffectSucceeded   EffectStatus = "succeeded"
	EffectFailedFinal EffectStatus = "failed_final" // refused for good
	EffectUnknown     EffectStatus = "unknown"      // nobody can tell whether it landed: it needs a verdict
)

// EffectStatuses returns all of them.
func EffectStatuses() []EffectStatus {
	return []EffectStatus{EffectPlanned, EffectSucceeded, EffectFailedFinal, EffectUnknown}
}

// An EffectID names a step.
type EffectID struct {
	Scope, Key string // of its owner: "job/QUEUE" and "ID@…" of a job, "command/SCOPE" and the key of a command
	Step       string
}

// An Effect is one step at a glance.
type Effect struct {
	EffectID
	Status        EffectStatus
	Fence         int64 // of the newest call or probe; a verdict names it
	Policy        string
	Provider      string // empty: none was named
	ProviderKey   string // the idempotency key that its calls carried
	Reference     string // the provider's name for what it made; empty: none is known
	JobID         int64  // the job that waits for it, if it is unknown; 0: none
	Calls         int
	InDoubt       int       // calls of which nobody knows whether they landed
	FirstCalledAt time.Time // zero: never
	LastNotAfter  time.Time // nothing was sent later than this
	MemoryEndsAt  time.Time // until then the provider is sure to know the key; zero: it was not said
	FailureCode   string
	Failure       string
	CreatedAt     time.Time
	UpdatedAt     time.Time
	ExpiresAt     time.Time // end of our memory, if it has ended
	ReadAt        time.Time // the database's clock at the reading
}

// An EffectFilter selects steps. The zero value selects the first 50 that are unknown.
type EffectFilter struct {
	Scope, Key string
	Provider   string
	Statuses   []EffectStatus // default: EffectUnknown
	After      EffectID       // only those behind it: the last of the page before
	Limit      int            // default 50, at most 1000
}

// Effects returns steps in the order of scope, key and step. A page shorter than the limit is the last.
//
// Errors: [pawl.ErrArgumentInvalid].
func Effects(ctx context.Context, db DB, f EffectFilter) ([]Effect, error) {
	if err := (Filter{Limit: f.Limit}).check(); err != nil {
		return nil, err
	}
	args := contract.EffectListArgs{Scope: f.Scope, Key: f.Key, Statuses: []string{string(EffectUnknown)},
		After: [3]string{f.After.Scope, f.After.Key, f.After.Step}, Limit: f.Limit}
	if f.Provider != "" {
		args.Providers = []string{f.Provider}
	}
	if f.Limit == 0 {
		args.Limit = defaultLimit
	}
	if len(f.Statuses) > 0 {
		args.Statuses = nil
	}
	for _, s := range f.Statuses {
		if !slices.Contains(EffectStatuses(), s) {
			return nil, &pawl.Error{Op: "effect.list", Code: pawl.CodeArgumentInvalid, Err: fmt.Errorf("unknown status %q", s),
				Hint: fmt.Sprintf("known: %s", strings.Trim(fmt.Sprint(EffectStatuses()), "[]"))}
		}
		args.Statuses = append(args.Statuses, string(s))
	}
	rows, err := contract.EffectList(ctx, db, args)
	if err != nil {
		return nil, err
	}
	effects := make([]Effect, len(rows))
	for i, r := range rows {
		effects[i] = effectOf(r)
	}
	return effects, nil
}

func effectOf(r contract.EffectRow) Effect {
	return Effect{EffectID: EffectID{r.Scope, r.Key, r.Step}, Status: EffectStatus(r.Status), Fence: r.Fence, Policy: r.Policy, Provider: orZero(r.Provider),
		ProviderKey: r.ProviderKey, Reference: orZero(r.Reference), JobID: orZero(r.JobID), Calls: r.Calls, InDoubt: r.InDoubt,
		FirstCalledAt: orZero(r.FirstCalledAt), LastNotAfter: orZero(r.LastNotAfter), MemoryEndsAt: orZero(r.MemoryEndsAt),
		FailureCode: orZero(r.FailureCode), Failure: orZero(r.FailureMessage), CreatedAt: r.CreatedAt, UpdatedAt: r.UpdatedAt,
		ExpiresAt: r.ExpiresAt, ReadAt: r.ReadAt}
}

func orZero[T any](p *T) (value T) {
	if p != nil {
		value = *p
	}
	return value
}

// An EffectDetail is all there is to know of one step.
type EffectDetail struct {
	Effect
	History []EffectCall // the newest 100 calls and probes, oldest first
	Changes []Change     // the newest 100 records of the audit, oldest first
}

// An EffectCall is what was seen of one call, or of one probe.
type EffectCall struct {
	Fence     int64
	Probe     bool // it only asked whether an earlier call had landed
	StartedAt time.Time
	NotAfter  time.Time // nothing was sent later than this
	EndedAt   time.Time // zero: nobody said
	Outcome   string    // "landed", "refused", "not_sent", "ambiguous"; "not_landed", "cannot_tell"; empty: nobody said
	Reference string
	Detail    json.RawMessage // an object: error, code, exchange
}

// ShowEffect returns everything about one step, and false if there is none.
func ShowEffect(ctx context.Context, db DB, id EffectID) (d EffectDetail, found bool, err error) {
	rows, err := contract.EffectList(ctx, db, contract.EffectListArgs{Scope: id.Scope, Key: id.Key, Step: id.Step, Limit: 1})
	if err != nil || len(rows) == 0 {
		return d, false, err
	}
	d.Effect = effectOf(rows[0])
	calls, err := contract.EffectCalls(ctx, db, id.Scope, id.Key, id.Step, changeLimit)
	if err != nil {
		return d, false, err
	}
	for _, c := range calls {
		d.History = append(d.History, EffectCall{Fence: c.Fence, Probe: c.Probe, StartedAt: c.StartedAt, NotAfter: c.NotAfter,
			EndedAt: orZero(c.EndedAt), Outcome: orZero(c.Outcome), Reference: orZero(c.Reference), Detail: c.Detail})
	}
	changes, err := contract.AuditOf(ctx, db, changeLimit, "effect", id.Scope, id.Key, id.Step)
	d.Changes = changesOf(changes)
	return d, err == nil, err
}

// The outcomes of [SettleEffect], beside [Refused] and [Absent].
const (
	Settled Outcome = "settled"
	Early   Outcome = "early" // not "landed", but something may still be sent; nothing changed
)

// A Verdict is what somebody found out about an unknown step.
type Verdict struct {
	// Outcome is "landed": it took effect; "refused": it did not and never will; "not_landed": it did not, and may be called again.
	Outcome string
	// Result, JSON, and Reference are what the provider made, if it landed. Without Result the handler gets the zero value.
	Result, Reference string
	// Code and Error are for a refusal. Default of Error: By.Reason.
	Code, Error string
}

// A SettleResult is the answer of [SettleEffect].
type SettleResult struct {
	Outcome    Outcome
	Status     EffectStatus  // now; empty if absent
	Fence      int64         // now, if it has moved
	RetryAfter time.Duration // if early
	Hint       string        // the next step, if nothing changed
}

// Changed reports whether the step was settled.
func (r SettleResult) Changed() bool { return r.Outcome == Settled }

// SettleEffect ends the doubt about an unknown step. The job that waits for it goes on, unless another of its steps is unknown too;
// a command has to be settled as well. By.Fence is required: [Effect.Fence] as you saw it when you asked the provider. [Moved]: another call has
// begun since, of which the verdict says nothing.
//
// Errors: as of [Retry]; [pawl.ErrArgumentInvalid] also for a missing fence, and for By.From, which is about jobs; 40001, and [pawl.Retryable]: restart.
func SettleEffect(ctx context.Context, db DB, id EffectID, v Verdict, by By) (SettleResult, error) {
	if err := by.only("effect.settle", "Fence"); err != nil {
		return SettleResult{}, err
	}
	if by.Fence == 0 {
		return SettleResult{}, noFence("effect.settle", "see Effect.Fence")
	}
	if v.Result != "" && !json.Valid([]byte(v.Result)) {
		return SettleResult{}, &pawl.Error{Op: "effect.settle", Code: pawl.CodeArgumentInvalid, Err: errors.New("the result is not JSON"),
			Hint: "give what the handler's call returns, as JSON"}
	}
	row, err := contract.EffectSettle(ctx, db, contract.EffectSettleArgs{Scope: id.Scope, Key: id.Key, Step: id.Step, Fence: by.Fence, Verdict: v.Outcome,
		Actor: by.Actor, Reason: by.Reason, Result: v.Result, Reference: v.Reference, Code: v.Code, Error: v.Error})
	if err != nil {
		return SettleResult{}, err
	}
	r := SettleResult{Outcome: Outcome(row.Outcome), Status: EffectStatus(row.Status), Fence: row.Fence, RetryAfter: row.RetryAfter}
	switch r.Outcome {
	case Settled:
	case Refused:
		r.Hint = "only what is unknown needs a verdict"
		if r.Status == EffectPlanned {
			r.Hint = "its next attempt finds out, or makes it unknown; retry its job"
		}
	case Moved:
		r.Hint = fmt.Sprintf("another call has begun since: its fence is %d; ask the provider about that one", r.Fence)
	case Early:
		r.Hint = "look again after that: a frozen attempt may still send it"
	case Absent:
		r.Hint = "look at the list"
	default:
		return SettleResult{}, &pawl.Error{Op: "effect.settle", Code: pawl.CodeUnknownState, Err: fmt.Errorf("outcome %q", row.Outcome)}
	}
	return r, nil
}

func noFence(op, hint string) error {
	return &pawl.Error{Op: op, Code: pawl.CodeArgumentInvalid, Err: errors.New("the verdict names no fence"), Hint: "set By.Fence to what was shown when you looked: " + hint}
}

// The outcomes of [AskAgain], beside [Refused], [Moved], [Early] and [Absent].
const (
	Renewed    Outcome = "renewed"
	WouldRenew Outcome = "would_renew" // of a dry run
)

// An AgainResult is the answer of [AskAgain].
type AgainResult struct {
	Outcome     Outcome
	Status      EffectStatus  // if nothing changed; empty if absent
	ProviderKey string        // the new key
	Job         int64         // that the step belongs to; 0: none
	Calls       int           // so far, all refused or without effect
	Fence       int64         // now, if it has moved
	RetryAfter  time.Duration // if early
	Hint        string        // the next step
}

// Changed reports whether the step will be called again.
func (r AgainResult) Changed() bool { return r.Outcome == Renewed }

// AskAgain has a step called again, under a new key, that its provider refused for good: a card that was declined, and now is not. A retry of
// its job alone meets the stored refusal, and the provider repeats it for the old key. The step is called at the next attempt of its owner:
// [Retry] its job. A step that is unknown needs a verdict instead.
//
// No key ties the new call to the old ones. If the provider took one of them after all, the new one is a second effect.
//
// key is the new key, 1 to 255 octets of printable ASCII; empty: a random UUID. By.Fence is required: [Effect.Fence] as you saw it.
//
// Errors: as of [SettleEffect]; [pawl.ErrKeyInvalid].
func AskAgain(ctx context.Context, db DB, id EffectID, key string, dryRun bool, by By) (AgainResult, error) {
	const op = "effect.again"
	if err := by.only(op, "Fence"); err != nil {
		return AgainResult{}, err
	}
	if by.Fence == 0 {
		return AgainResult{}, noFence(op, "see Effect.Fence")
	}
	if strings.ContainsFunc(key, func(r rune) bool { return r < ' ' || r > '~' }) {
		return AgainResult{}, &pawl.Error{Op: op, Code: pawl.CodeKeyInvalid, Err: fmt.Errorf("the key %.255q does not fit an HTTP header: printable ASCII only", key)}
	}
	row, err := contract.EffectAgain(ctx, db, contract.EffectAgainArgs{Scope: id.Scope, Key: id.Key, Step: id.Step, Fence: by.Fence, ProviderKey: key,
		Actor: by.Actor, Reason: by.Reason, DryRun: dryRun})
	if err != nil {
		return AgainResult{}, err
	}
	r := AgainResult{Outcome: Outcome(row.Outcome), Status: EffectStatus(row.Status), ProviderKey: row.ProviderKey, Job: row.JobID, Calls: row.Calls,
		Fence: row.Fence, RetryAfter: row.RetryAfter}
	switch r.Outcome {
	case Renewed, WouldRenew:
		r.Hint = "its owner calls at its next attempt; a command that has ended needs a new key of its caller"
		if r.Job != 0 {
			r.Hint = fmt.Sprintf("retry job %d, which calls then", r.Job)
		}
	case Refused:
		r.Hint = "only what was refused for good may be asked for again"
		if row.Landed {
			r.Hint = "a call of it landed after all: it is done"
		} else if r.Status == EffectUnknown {
			r.Hint = "nobody knows whether it landed: it needs a verdict"
		}
	case Moved:
		r.Hint = fmt.Sprintf("another call has begun since: its fence is %d; look again", r.Fence)
	case Early:
		r.Hint = "look again after that: a frozen attempt may still send an earlier call"
	case Absent:
		r.Hint = "look at the list"
	default:
		return AgainResult{}, &pawl.Error{Op: op, Code: pawl.CodeUnknownState, Err: fmt.Errorf("outcome %q", row.Outcome)}
	}
	return r, nil
}
