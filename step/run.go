package step

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/contract"
	"github.com/pawl-go/pawl/internal/ranges"
)

// A Step is one call of a provider in a handler. Name and Recovery are required.
type Step struct {
	// Name of the step, the same at every attempt: "charge". 1 to 255 bytes.
	Name string
	// Recovery says what may be done if the outcome of a call is unknown.
	Recovery Recovery
	// Request is the request's content: bytes, or a value that can be written as JSON. If the same
	// step comes with another request, it is refused with [pawl.ErrKeyReused]. Derive it from the
	// intent alone, not from the time or the attempt.
	Request any
	// Provider is shown to operators and selects the probe of [Reconcile]: "stripe". Up to 255
	// bytes. Default none.
	Provider string
	// Key is sent verbatim as the idempotency key: up to 255 bytes of printable ASCII. Default: a
	// UUID derived from owner and step.
	Key string
	// Timeout of one call, and of a probe. Default 30 s, at most 12 h.
	Timeout time.Duration
	// Retention of the finished step must outlast every retry of its owner. Default 30 days, 1 s to
	// 10 years.
	Retention time.Duration
	// Hooks receive the step's events. Default: log to [log/slog.Default].
	Hooks pawl.Hooks
}

// Run executes a step, unless an earlier attempt has, and returns the result of fn, read back from
// storage. If the step was settled by hand without a result, Run returns the zero value.
//
// fn is called after the plan has committed, with no transaction open, until the call's deadline.
// It must send [Call.Key]; see [Transport]. A call of a [Keyed] step without the key is an error.
// If fn returns nil, the call was executed. It may also return [Refused] or [NotSent]. Any other
// error, or a result that cannot be stored (over 4 MiB as JSON), is ambiguous.
//
// Errors: a [Refusal], wrapped as [pawl.Final]. [pawl.ErrOutcomeUnknown]: the outcome is unknown;
// return the error, and the job waits until you settle the step. [pawl.ErrFenceLost]: a newer
// attempt is running; drop this one. [pawl.ErrKeyReused]: the step was planned with another
// Request. [pawl.ErrArgumentInvalid] or [pawl.ErrKeyInvalid] for a field of s. The error of fn: the
// job's next attempt tries again as the recovery allows.
//
// h must not be in a transaction that has called Hold, as in job.HandleTx: the plan runs in another
// transaction, which would fail waiting for it (55P03). In a leased command that makes no other
// calls, set Repeatable: its steps are not repeated.
func Run[T any](ctx context.Context, pool *pgxpool.Pool, h pawl.Holder, s Step, fn func(context.Context, Call) (T, error)) (result T, err error) {
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

// A taking is one attempt's execution of a step.
type taking struct {
	pool *pgxpool.Pool
	h    pawl.Holder
	step Step
	args contract.StepArgs
}

func newTaking(pool *pgxpool.Pool, h pawl.Holder, s Step) (*taking, error) {
	request, err := encode(s.Request)
	switch {
	case pool == nil || h == nil:
		return nil, invalid(errors.New("the pool or the Holder is missing"))
	case err != nil:
		return nil, invalid(fmt.Errorf("the request cannot be written as JSON: %w", err))
	case s.Recovery.name == "":
		return nil, invalid(errors.New("the step has no Recovery"))
	case s.Recovery.name == "keyed" && s.Recovery.memory < time.Second:
		return nil, invalid(fmt.Errorf("the provider's memory must be a second or more, it is %v", s.Recovery.memory))
	case s.Recovery.name == "checked" && s.Recovery.probe == nil:
		return nil, invalid(errors.New("the recovery Checked needs a probe"))
	}
	if err := ranges.NotNegative(s); err != nil {
		return nil, invalid(err)
	}
	if s.Timeout == 0 {
		s.Timeout = defaultTimeout
	}
	owner := h.Owner()
	key := s.Key
	if key == "" {
		key = derivedKey(owner, s.Name)
	}
	if strings.ContainsFunc(key, func(r rune) bool { return r < ' ' || r > '~' }) {
		return nil, &pawl.Error{Op: "step.run", Code: pawl.CodeKeyInvalid, Err: fmt.Errorf("the key %q does not fit an HTTP header: printable ASCII only", key)}
	}
	return &taking{pool: pool, h: h, step: s, args: contract.StepArgs{
		Owner: owner, Step: s.Name, Fingerprint: pawl.FingerprintOf(request), Recovery: s.Recovery.name, Provider: s.Provider,
		ProviderKey: key, Timeout: s.Timeout, Memory: s.Recovery.memory, Settle: s.Recovery.settle, Retention: s.Retention,
	}}, nil
}

func invalid(err error) error {
	return &pawl.Error{Op: "step.run", Code: pawl.CodeArgumentInvalid, Err: err}
}

// derivedKey is the same at every attempt, on every machine, and after a restore of the database.
// The exception is a job that the backup lacks: enqueued again, it is another owner. The key is a
// UUID of version 8 (RFC 9562, 5.8), because some providers accept nothing longer (Square: 45
// characters) or nothing else (Brevo).
func derivedKey(o pawl.Owner, step string) string {
	u := sha256.Sum256([]byte(pawl.Key(o.Scope) + pawl.Key(o.Key) + pawl.Key(step)))
	u[6] = u[6]&0x0f | 0x80
	u[8] = u[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:16])
}
