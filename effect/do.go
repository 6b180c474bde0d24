package effect

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/contract"
	"github.com/pawl-go/pawl/internal/fault"
	"github.com/pawl-go/pawl/internal/txn"
)

// A Step is one call of a provider, within what a handler does for one job, delivery or command. Name and Policy are required.
type Step struct {
	// Name of the step, the same at every attempt: "charge". 1 to 255 octets.
	Name string
	// Policy says what may be done if nobody knows how a call ended.
	Policy Policy
	// Request is what is asked for: octets, or anything that JSON can hold. The same step with another request is refused with
	// [pawl.ErrKeyReused]: derive it from the intent alone, not from the time or the attempt.
	Request any
	// Provider is shown to operators, and chooses who reconciles: "stripe".
	Provider string
	// Key is sent as the idempotency key, verbatim. Default: one derived from owner and step.
	Key string
	// Timeout of one call, and of a probe. Default 30 s, at most 12 h.
	Timeout time.Duration
	// Retention is how long the finished step is remembered; it must outlast every retry of its owner. Default 30 days.
	Retention time.Duration
	// Hooks receive what happens.
	Hooks pawl.Hooks
}

// Do takes a step, unless an earlier attempt has, and returns its result: what fn returned, read back from what is stored.
//
// fn is called after the plan has committed, with no transaction open, at most until the call's deadline. It must send
// [Call.Key]; see [Transport]. What it returns says how the call ended: nil, it landed; [Refused]; [NotSent]; any other error is
// ambiguous, except that a connection which was never made sent nothing.
//
// Errors: a [Refusal], wrapped as [pawl.Final]; [pawl.ErrOutcomeUnknown]: nobody knows whether it landed, return it and the job
// waits for a verdict; [pawl.ErrFenceLost]: a newer attempt is at work, drop this one; [pawl.ErrKeyReused]; fn's own, after which
// the job's next attempt tries again as the policy allows.
//
// h must not be in a transaction that has called Hold: the plan is made in another one.
func Do[T any](ctx context.Context, pool *pgxpool.Pool, h pawl.Holder, s Step, fn func(context.Context, Call) (T, error)) (result T, err error) {
	t, err := newTaking(pool, h, s)
	if err != nil {
		return result, err
	}
	stored, err := t.take(ctx, func(ctx context.Context, c Call) ([]byte, error) {
		value, err := fn(ctx, c)
		if err != nil {
			return nil, err
		}
		return encode(value)
	})
	if err != nil {
		return result, err
	}
	return decode[T](stored)
}

// A taking is one attempt's way through a step.
type taking struct {
	pool *pgxpool.Pool
	h    pawl.Holder
	step Step
	args contract.EffectArgs
}

func newTaking(pool *pgxpool.Pool, h pawl.Holder, s Step) (*taking, error) {
	request, err := encode(s.Request)
	switch {
	case err != nil:
		return nil, invalid(fmt.Errorf("the request cannot be written as JSON: %w", err))
	case s.Policy.name == "":
		return nil, invalid(errors.New("the step has no Policy"))
	case s.Policy.name == "keyed" && s.Policy.memory < time.Second:
		return nil, invalid(fmt.Errorf("the provider's memory must be a second or more, it is %v", s.Policy.memory))
	case s.Policy.name == "checked" && s.Policy.probe == nil:
		return nil, invalid(errors.New("the policy Checked needs a probe"))
	}
	if s.Timeout <= 0 {
		s.Timeout = 30 * time.Second
	}
	owner := h.Owner()
	key := s.Key
	if key == "" {
		key = derivedKey(owner, s.Name)
	}
	if strings.ContainsFunc(key, func(r rune) bool { return r < ' ' || r > '~' }) {
		return nil, &pawl.Error{Op: "effect.do", Code: pawl.CodeKeyInvalid, Err: fmt.Errorf("the key %q does not fit an HTTP header: printable ASCII only", key)}
	}
	return &taking{pool: pool, h: h, step: s, args: contract.EffectArgs{
		Owner: owner, Step: s.Name, Fingerprint: pawl.FingerprintOf(request), Policy: s.Policy.name, Provider: s.Provider,
		ProviderKey: key, Timeout: s.Timeout, Memory: s.Policy.memory, Settle: s.Policy.settle, TTL: s.Retention,
	}}, nil
}

func invalid(err error) error {
	return &pawl.Error{Op: "effect.do", Code: pawl.CodeArgumentInvalid, Err: err}
}

// derivedKey is the same at every attempt, on every machine, and after a restore of the database: 69 octets of ASCII.
func derivedKey(o pawl.Owner, step string) string {
	sum := sha256.Sum256([]byte(pawl.Key(o.Scope) + pawl.Key(o.Key) + pawl.Key(step)))
	return "pawl-" + hex.EncodeToString(sum[:])
}

// take goes through plan, call and record until the step has an end, or this attempt has.
func (t *taking) take(ctx context.Context, call func(context.Context, Call) ([]byte, error)) ([]byte, error) {
	for {
		asked := time.Now()
		row, err := t.plan(ctx)
		if err != nil {
			return nil, err
		}
		c := Call{Step: t.step.Name, Key: row.ProviderKey, Fence: row.Fence, Number: row.Calls, Again: row.Doubts > 0,
			Deadline: asked.Add(row.Left), reference: new(string)}
		switch row.Outcome {
		case "replay_success":
			t.emit(ctx, pawl.Event{Kind: pawl.EventReplay, Op: "effect.begin"})
			return row.Result, nil
		case "final_failure":
			return nil, pawl.Final(&Refusal{row.FailureCode, row.FailureMessage})
		case "unknown":
			err := unknown(t.step.Name, nil)
			t.emit(ctx, pawl.Event{Kind: pawl.EventUnknown, Op: "effect.begin", Err: err})
			return nil, err
		case "wait":
			if err := pause(ctx, row.RetryAfter); err != nil {
				return nil, err
			}
		case "probe":
			if stored, landed, err := t.probe(ctx, c); err != nil || landed {
				return stored, err
			}
		case "call":
			return t.call(ctx, c, call)
		default:
			return nil, &pawl.Error{Op: "effect.begin", Code: pawl.CodeUnknownState, Err: fmt.Errorf("outcome %q", row.Outcome)}
		}
	}
}

// plan proves that this attempt owns the step and asks what may be done. Nothing is called before it has committed.
//
// plan: a crash before the COMMIT leaves nothing; after it, a call of which nobody knows, though it was never made.
func (t *taking) plan(ctx context.Context) (row contract.EffectBeginRow, err error) {
	if err := fault.At("effect.plan.before"); err != nil {
		return row, err
	}
	err = txn.Restart(ctx, func() error {
		tx, err := txn.Begin(ctx, t.pool, "effect.begin", 10*time.Second)
		if err != nil {
			return err
		}
		defer txn.Rollback(ctx, tx)
		if err := t.h.Hold(ctx, tx); err != nil {
			return err
		}
		if row, err = contract.EffectBegin(ctx, tx, t.args); err != nil {
			return err
		}
		return txn.Commit(ctx, "effect.begin", tx)
	})
	if pawl.MayHaveHappened(err) && row.Outcome == "call" {
		t.giveBack(ctx, row.Fence)
	}
	if err == nil {
		err = fault.At("effect.plan.after")
	}
	return row, err
}

// giveBack says that a permission was not used whose COMMIT went unanswered. It may still be on its way to being durable, so that
// an absent one is asked for again, for a while; what is never told stays in doubt, which is safe.
func (t *taking) giveBack(ctx context.Context, fence int64) {
	for range 20 {
		row, err := t.record(ctx, contract.EffectEndArgs{Fence: fence, Outcome: "not_sent"})
		if err != nil || row.Status != "absent" || pause(ctx, 100*time.Millisecond) != nil {
			return
		}
	}
}

// call calls the provider, and records how that ended whatever happens.
//
// call: a crash here, or before the record has committed, is what the policies are for.
func (t *taking) call(ctx context.Context, c Call, fn func(context.Context, Call) ([]byte, error)) ([]byte, error) {
	if c.Again && t.step.Policy.name == "accept_duplicates" {
		t.emit(ctx, pawl.Event{Kind: pawl.EventEffectAgain, Op: "effect.call"})
	}
	start := time.Now()
	result, err := t.within(ctx, c, fn)
	outcome, failure := outcomeOf(err)
	if err := fault.At("effect.call.after"); err != nil {
		return nil, err
	}
	row, unrecorded := t.record(ctx, contract.EffectEndArgs{Fence: c.Fence, Outcome: outcome, Result: result, Reference: *c.reference,
		Failure: failure})
	if unrecorded != nil {
		return nil, pawl.Wrap("effect.end", errors.Join(unrecorded, err))
	}
	if err := fault.At("effect.record.after"); err != nil {
		return nil, err
	}
	switch {
	case outcome == "landed" && row.Status == "absent":
		return nil, &pawl.Error{Op: "effect.end", Code: pawl.CodeFenceLost, Err: errors.New("the step was purged meanwhile")}
	case outcome == "landed":
		t.emit(ctx, pawl.Event{Kind: pawl.EventFresh, Op: "effect.call", Took: time.Since(start)})
		return result, nil
	case row.Status == "unknown":
		err = unknown(t.step.Name, err)
		t.emit(ctx, pawl.Event{Kind: pawl.EventUnknown, Op: "effect.call", Err: err})
	case outcome == "refused":
		err = pawl.Final(err)
	}
	return nil, err
}

// within calls fn, until the call's deadline. A panic is recorded as a doubt before it goes on.
func (t *taking) within(ctx context.Context, c Call, fn func(context.Context, Call) ([]byte, error)) (result []byte, err error) {
	ctx, cancel := context.WithDeadline(context.WithValue(ctx, callKey{}, c), c.Deadline)
	defer cancel()
	if ctx.Err() != nil {
		return nil, overdue(ctx)
	}
	err = txn.Run(ctx, time.Until(c.Deadline), func(ctx context.Context) error {
		if err := fault.At("effect.call.before"); err != nil {
			return NotSent(err)
		}
		result, err = fn(ctx, c)
		return err
	})
	return result, err
}

// probe asks the provider about earlier calls. landed: stored is the step's result.
func (t *taking) probe(ctx context.Context, c Call) (stored []byte, landed bool, err error) {
	var verdict Verdict
	stored, err = t.within(ctx, c, func(ctx context.Context, c Call) ([]byte, error) {
		v, value, err := t.step.Policy.probe(ctx, c)
		if verdict = v; err != nil || v != Landed {
			return nil, err
		}
		return encode(value)
	})
	if err == nil && verdict != Landed && verdict != NotLanded && verdict != CannotTell {
		err = invalid(fmt.Errorf("a probe returned the verdict %q", verdict))
	}
	if err != nil {
		return nil, false, fmt.Errorf("the probe of step %s: %w", t.step.Name, err)
	}
	row, err := t.record(ctx, contract.EffectEndArgs{Fence: c.Fence, Outcome: string(verdict), Result: stored, Reference: *c.reference})
	switch {
	case err != nil:
		return nil, false, err
	case row.Status == "unknown":
		err = unknown(t.step.Name, errors.New("the probe cannot tell"))
		t.emit(ctx, pawl.Event{Kind: pawl.EventUnknown, Op: "effect.probe", Err: err})
		return nil, false, err
	}
	return stored, verdict == Landed, nil
}

// recordFor bounds how long the end of a call is told to a database that does not answer. It is worth waiting for: what is not told
// has to be found out.
const recordFor = 20 * time.Second

// record tells how a call ended. It may be told twice, so it is until an answer comes.
func (t *taking) record(ctx context.Context, a contract.EffectEndArgs) (row contract.EffectEndRow, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordFor)
	defer cancel()
	a.Owner, a.Step = t.args.Owner, t.args.Step
	for wait := 10 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		row, err = contract.EffectEnd(ctx, t.pool, a)
		if err == nil || txn.Refused(err) && !pawl.Retryable(err) || pause(ctx, wait) != nil {
			break
		}
	}
	for kind, is := range map[pawl.EventKind]bool{pawl.EventEffectTwice: row.Twice, pawl.EventTrouble: row.Contradicts} {
		if is {
			t.emit(ctx, pawl.Event{Kind: kind, Op: "effect.end", Err: fmt.Errorf("call %d ended %s, against what was known", a.Fence, a.Outcome)})
		}
	}
	return row, err
}

func (t *taking) emit(ctx context.Context, e pawl.Event) {
	e.Scope, e.Key, e.JobID = t.args.Owner.Scope, t.args.Owner.Key+" "+t.args.Step, t.args.Owner.JobID
	t.step.Hooks.Emit(context.WithoutCancel(ctx), e)
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

func encode(value any) ([]byte, error) {
	switch v := value.(type) {
	case nil:
		return []byte{}, nil
	case []byte:
		return v, nil
	case json.RawMessage:
		return v, nil
	}
	return json.Marshal(value)
}

func decode[T any](stored []byte) (value T, err error) {
	switch v := any(&value).(type) {
	case *[]byte:
		*v = stored
	case *json.RawMessage:
		*v = stored
	default:
		if len(stored) == 0 {
			return value, nil // settled by hand
		}
		if err = json.Unmarshal(stored, &value); err != nil {
			err = &pawl.Error{Op: "effect.decode", Err: fmt.Errorf("the stored result is no %T: %w", value, err),
				Hint: "the type has changed since it was stored; read it as json.RawMessage"}
		}
	}
	return value, err
}
