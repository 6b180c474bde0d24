package consumer

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/payload"
)

// A Message is a delivery and its payload, decoded.
type Message[T any] struct {
	pawl.Delivery
	Value T // from Payload, which is JSON; a T of []byte gets the octets as they are
}

// A Handler is your function, its form and its policy. Make it with [HandleTx], [HandleManyTx], [HandleSQL], [HandleManySQL], [Handle] or
// [Trigger].
//
// In every form a payload that is not JSON of the function's type becomes a dead letter at once, with the reason.
type Handler interface {
	settings() settings
}

// HandleTx makes the transactional form: fn applies one delivery. Everything it writes through tx commits together with the record that the
// delivery was seen, or not at all. fn must not commit or roll back tx, nor keep it, and nothing may leave the process while it runs:
// a call to another system cannot be rolled back (rule 6 in docs/concepts/consumers.md).
//
// An error or a panic means "not now": see [Mode]. Wrap an error in [pawl.Final] if no retry can
// help; see [job.RetryAfter], [job.Snooze] and [job.Cancel] for what else an error can ask for.
func HandleTx[T any](fn func(ctx context.Context, tx pgx.Tx, m Message[T]) error) TxHandler {
	if fn == nil {
		return TxHandler{}
	}
	return TxHandler{call: func(ctx context.Context, tx pgx.Tx, ds []pawl.Delivery) error {
		m, err := decode[T](ds[0])
		if err != nil {
			return err
		}
		return fn(ctx, tx, m)
	}}
}

// A TxHandler is a handler made by [HandleTx].
type TxHandler struct {
	call   txCall
	policy TxPolicy
}

// With returns the handler under a policy.
func (h TxHandler) With(p TxPolicy) TxHandler {
	h.policy = p
	return h
}

// Policy returns the handler's policy, as it was given.
func (h TxHandler) Policy() TxPolicy { return h.policy }

// Apply calls the function for one delivery in a transaction of yours: it decodes, and neither claims nor commits. For tests, and for a door
// of your own that claims with package inbox.
func (h TxHandler) Apply(ctx context.Context, tx pgx.Tx, d pawl.Delivery) error {
	if h.call == nil {
		return errNoHandler
	}
	return h.call(ctx, tx, []pawl.Delivery{d})
}

func (h TxHandler) settings() settings {
	return settings{form: single, Policy: h.policy.Policy, mode: h.policy.Mode, exclusive: h.policy.Exclusive, gate: h.policy.SequenceGate, tx: h.call}
}

// HandleManyTx makes the batch form: as [HandleTx], for many deliveries in one transaction, all of them or none. If fn fails it is called
// again with each half of them, down to those that fail by themselves: only they are stored. So it may see a delivery several times,
// never twice in one committed transaction. Deliveries with an ordering key or a semantic one come to it one at a time. Of several deliveries
// the context has no trace, as theirs differ.
func HandleManyTx[T any](fn func(ctx context.Context, tx pgx.Tx, ms []Message[T]) error) ManyTxHandler {
	if fn == nil {
		return ManyTxHandler{}
	}
	return ManyTxHandler{call: func(ctx context.Context, tx pgx.Tx, ds []pawl.Delivery) error {
		ms := make([]Message[T], len(ds))
		for i, d := range ds {
			var err error
			if ms[i], err = decode[T](d); err != nil {
				return err
			}
		}
		return fn(ctx, tx, ms)
	}}
}

// A ManyTxHandler is a handler made by [HandleManyTx] or [HandleManySQL].
type ManyTxHandler struct {
	call   txCall
	sql    bool
	policy ManyTxPolicy
}

// With returns the handler under a policy.
func (h ManyTxHandler) With(p ManyTxPolicy) ManyTxHandler {
	h.policy = p
	return h
}

// Policy returns the handler's policy, as it was given.
func (h ManyTxHandler) Policy() ManyTxPolicy { return h.policy }

func (h ManyTxHandler) settings() settings {
	return settings{form: many, Policy: h.policy.Policy, batchSize: h.policy.BatchSize, tx: h.call, sql: h.sql}
}

// Handle makes the form without a transaction: a delivery is stored and acknowledged, then fn works
// on it under a lease, for work that takes minutes or must call others. What fn writes through
// [Attempt.Commit] takes effect once. What it does elsewhere is a step of package step, whose owner
// is the [Attempt], or must bear repeating, since a crash runs it again. Of deliveries with one
// SemanticKey fn works on one at a time, and on none once the key took effect.
//
// Returning nil without a Commit settles the delivery. An error or a panic means another try; see
// [job.RetryAfter], [job.Snooze], [job.Cancel] and [pawl.Final].
func Handle[T any](fn func(ctx context.Context, a *Attempt[T]) error) LeasedHandler {
	if fn == nil {
		return LeasedHandler{}
	}
	return LeasedHandler{call: func(ctx context.Context, t *try) error {
		m, err := decode[T](t.delivery)
		if err != nil {
			return err
		}
		return fn(ctx, &Attempt[T]{Message: m, try: t})
	}}
}

// A LeasedHandler is a handler made by [Handle].
type LeasedHandler struct {
	call   func(context.Context, *try) error
	policy Policy
}

// With returns the handler under a policy.
func (h LeasedHandler) With(p Policy) LeasedHandler {
	h.policy = p
	return h
}

// Policy returns the handler's policy, as it was given.
func (h LeasedHandler) Policy() Policy { return h.policy }

func (h LeasedHandler) settings() settings {
	return settings{form: leased, Policy: h.policy, mode: StoreFirst, try: h.call}
}

// Trigger makes the form for messages that only name a row which exists: "process order 17". The row remembers, not the inbox, and the
// message is only what starts the work. Build fn on package guard for a table of your own, or on [job.Worker.Process]. A SemanticKey is
// not looked at: two messages that announce one row name it twice, and the row absorbs the second.
//
// nil means that the database holds the outcome: the message is acknowledged. So it is after [pawl.ErrAlreadyHandled], logged at
// debug, and [pawl.ErrFailureRecorded]: the row holds the error, and the sweeper of the rows drives it again; and after
// [pawl.ErrInProgress] if the error is [pawl.Swept]. After any other error nothing is acknowledged, and the message comes again.
//
// [job.Worker.Process]: https://pkg.go.dev/github.com/pawl-go/pawl/job#Worker.Process
func Trigger[T any](fn func(ctx context.Context, m Message[T]) error) TriggerHandler {
	if fn == nil {
		return TriggerHandler{}
	}
	return TriggerHandler{call: func(ctx context.Context, d pawl.Delivery) error {
		m, err := decode[T](d)
		if err != nil {
			return invalidError{err}
		}
		return fn(ctx, m)
	}}
}

// A TriggerHandler is a handler made by [Trigger].
type TriggerHandler struct {
	call   func(context.Context, pawl.Delivery) error
	policy TriggerPolicy
}

// With returns the handler under a policy.
func (h TriggerHandler) With(p TriggerPolicy) TriggerHandler {
	h.policy = p
	return h
}

// Policy returns the handler's policy, as it was given.
func (h TriggerHandler) Policy() TriggerPolicy { return h.policy }

func (h TriggerHandler) settings() settings {
	return settings{form: triggered, Policy: Policy{Timeout: h.policy.Timeout}, trigger: h.call}
}

// decode fails for good: the same octets will not become JSON by waiting.
func decode[T any](d pawl.Delivery) (m Message[T], err error) {
	m.Delivery = d
	if raw, ok := any(&m.Value).(*[]byte); ok {
		*raw = d.Payload
	} else if err = payload.Decode(d.Payload, &m.Value); err != nil {
		err = pawl.Final(fmt.Errorf("the payload of message %s does not fit %T: %w", d.MessageID, m.Value, err))
	}
	return m, err
}
