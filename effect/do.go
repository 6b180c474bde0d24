package effect

import (
	"context"
	"crypto/sha256"
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
// [Call.Key]; see [Transport]. A call of a [Keyed] step that sends none is an error. What it returns says how the call ended: nil, it landed; [Refused]; [NotSent]; any other error,
// and a result that cannot be stored (over 4 MiB as JSON), is ambiguous.
//
// Errors: a [Refusal], wrapped as [pawl.Final]; [pawl.ErrOutcomeUnknown]: nobody knows whether it landed, return it and the job
// waits for a verdict; [pawl.ErrFenceLost]: a newer attempt is at work, drop this one; [pawl.ErrKeyReused]; fn's own, after which
// the job's next attempt tries again as the policy allows.
//
// A step that was settled by hand as landed, without a result, returns the zero value.
//
// h must not be in a transaction that has called Hold, as in job.HandleTx: the plan is made in another one, which would wait for it
// in vain (55P03). In a leased command that makes no other call, set Repeatable: steps are not repeated.
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
		return encodeResult(value)
	})
	if err != nil {
		return result, err
	}
	return decode[T](stored)
}

const (
	defaultTimeout = 30 * time.Second
	defaultSettle  = 10 * time.Second
)

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
	case pool == nil || h == nil:
		return nil, invalid(errors.New("the pool or the Holder is missing"))
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
		s.Timeout = defaultTimeout
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

// derivedKey is the same at every attempt, on every machine, and after a restore of the database, but for a job that its backup does not
// have: enqueued again it is another owner. It is a UUID of version 8 (RFC 9562, 5.8), because some providers take nothing longer (Square:
// 45 characters) or nothing else (Brevo).
func derivedKey(o pawl.Owner, step string) string {
	u := sha256.Sum256([]byte(pawl.Key(o.Scope) + pawl.Key(o.Key) + pawl.Key(step)))
	u[6] = u[6]&0x0f | 0x80
	u[8] = u[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:16])
}

// take goes through plan, call and record until the step has an end, or this attempt has.
func (t *taking) take(ctx context.Context, call func(context.Context, Call) ([]byte, error)) ([]byte, error) {
	for {
		asked := time.Now()
		row, err := t.plan(ctx)
		if err != nil {
			return nil, err
		}
		c := Call{Owner: t.args.Owner, Step: t.step.Name, key: row.ProviderKey, Fence: row.Fence, Number: row.Calls, Again: row.Doubts > 0,
			Deadline: asked.Add(row.Left), seen: &seen{}}
		switch row.Outcome {
		case "replay_success":
			t.emit(ctx, pawl.Event{Kind: pawl.EventReplay, Op: "effect.begin"})
			return row.Result, nil
		case "final_failure":
			return nil, pawl.Final(&Refusal{Code: row.FailureCode, Message: row.FailureMessage})
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
			if stored, landed, err := t.call(ctx, c, call); err != nil || landed {
				return stored, err
			}
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
	if err == nil && row.Unproved {
		err = txn.Replicated(ctx, t.pool)
	}
	if pawl.CodeOf(err) == "55P03" {
		err = &pawl.Error{Op: "effect.begin", Code: "55P03", Err: err, Hint: "if the transaction of this very handler holds the row: a step needs a handler without one, job.Handle"}
	}
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
		row, err := t.record(ctx, Call{Fence: fence, seen: &seen{}}, contract.EffectEndArgs{Outcome: "not_sent"})
		if err != nil || row.Status != "absent" || pause(ctx, 100*time.Millisecond) != nil {
			return
		}
	}
}

// call calls the provider, and records how that ended whatever happens. landed: stored is the step's result. Neither that nor an
// error: the step had ended before, and what it holds is asked for once more.
//
// call: a crash here, or before the record has committed, is what the policies are for.
func (t *taking) call(ctx context.Context, c Call, fn func(context.Context, Call) ([]byte, error)) (stored []byte, landed bool, err error) {
	if c.Again && t.step.Policy.name == "accept_duplicates" {
		t.emit(ctx, pawl.Event{Kind: pawl.EventEffectAgain, Op: "effect.call"})
	}
	start := time.Now()
	result, failed := t.within(ctx, c, fn)
	outcome, failure := outcomeOf(c, failed)
	forgot := t.step.Policy.name == "keyed" && outcome != "not_sent" && c.keyless()
	if forgot && failed != nil {
		failed = errors.Join(errKeyless(t.step.Name), failed)
		failure.Error = contract.FailureOf(failed).Error
	}
	if err := fault.At("effect.call.after"); err != nil {
		return nil, false, err
	}
	row, err := t.record(ctx, c, contract.EffectEndArgs{Outcome: outcome, Result: result, Failure: failure, Keyless: forgot})
	if err != nil {
		return nil, false, pawl.Wrap("effect.end", errors.Join(err, failed))
	}
	if err := fault.At("effect.record.after"); err != nil {
		return nil, false, err
	}
	switch {
	case row.Status == "absent":
		return nil, false, &pawl.Error{Op: "effect.end", Code: pawl.CodeFenceLost, Err: errors.New("the step was purged meanwhile")}
	case row.Kept:
		return nil, false, nil
	case outcome == "landed" && forgot:
		return nil, false, pawl.Final(errKeyless(t.step.Name))
	case outcome == "landed":
		t.emit(ctx, pawl.Event{Kind: pawl.EventFresh, Op: "effect.call", Took: time.Since(start)})
		return result, true, nil
	case row.Status == "unknown":
		failed = unknown(t.step.Name, failed)
		t.emit(ctx, pawl.Event{Kind: pawl.EventUnknown, Op: "effect.call", Err: failed})
	case row.Status == "failed_final":
		failed = pawl.Final(failed)
	}
	return nil, false, failed
}

// errKeyless is the error of a keyed call that cannot have carried its key. It is final, so that it is seen before money depends on it.
func errKeyless(step string) error {
	return &pawl.Error{Op: "effect.call", Code: pawl.CodeArgumentInvalid, Err: fmt.Errorf("step %s is Keyed, but nothing asked for the key of its call", step),
		Hint: "send Call.Key, or put effect.Transport into the client; a provider that takes no key needs another policy"}
}

// within calls fn, until the call's deadline. A panic is recorded as a doubt before it goes on.
func (t *taking) within(ctx context.Context, c Call, fn func(context.Context, Call) ([]byte, error)) (result []byte, err error) {
	ctx, cancel := context.WithDeadline(context.WithValue(ctx, callKey{}, c), c.Deadline)
	defer cancel()
	if c.overdue() || ctx.Err() != nil {
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
	if c.overdue() || ctx.Err() != nil {
		return nil, false, overdue(ctx)
	}
	verdict, stored, err := ask(ctx, t.step.Policy.probe, c)
	if err != nil {
		return nil, false, fmt.Errorf("the probe of step %s: %w", t.step.Name, err)
	}
	row, err := t.record(ctx, c, contract.EffectEndArgs{Outcome: string(verdict), Result: stored})
	switch {
	case err != nil:
		return nil, false, err
	case row.Status == "unknown":
		err = unknown(t.step.Name, errors.New("the probe cannot tell"))
		t.emit(ctx, pawl.Event{Kind: pawl.EventUnknown, Op: "effect.probe", Err: err})
		return nil, false, err
	}
	return stored, verdict == Landed && row.Status == "succeeded" && !row.Kept, nil
}

// recordFor bounds how long the end of a call is told to a database that does not answer. It is worth waiting for: what is not told
// has to be found out.
const recordFor = 20 * time.Second

// record tells how a call ended. It may be told twice, so it is until an answer comes.
func (t *taking) record(ctx context.Context, c Call, a contract.EffectEndArgs) (row contract.EffectEndRow, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordFor)
	defer cancel()
	reference, exchange := c.seen.noted()
	a.Owner, a.Step, a.Fence, a.Reference = t.args.Owner, t.args.Step, c.Fence, cut(reference, 255)
	if exchange != nil {
		a.Exchange = exchange
	}
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
	e.Step, e.Provider = t.args.Step, t.step.Provider
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

// maxResult is what the domain pawl.octets holds.
const maxResult = 4 << 20

// encodeResult makes of a result what is stored. What cannot be stored cannot be replayed, so the call is as good as unanswered.
func encodeResult(value any) ([]byte, error) {
	stored, err := encode(value)
	if err == nil && len(stored) > maxResult {
		err = fmt.Errorf("it has %d octets, at most %d can be stored", len(stored), maxResult)
	}
	if err != nil {
		return nil, fmt.Errorf("the call landed, but its result cannot be kept: %w", err)
	}
	return stored, nil
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
