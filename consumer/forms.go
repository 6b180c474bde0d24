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
	// Value is Payload decoded as JSON, or Payload itself if T is []byte.
	Value T
}

// A Handler is your function with its policy. The constructor decides in which form the consumer
// calls it: [HandleTx], [HandleManyTx], [HandleSQL], [HandleManySQL], [Handle] or [Trigger].
//
// A payload that is not JSON of the function's type becomes a dead letter at once, with the reason.
type Handler interface {
	settings() settings
}

// HandleTx makes the transactional form: fn applies one delivery. Everything it writes through tx
// commits together with the record that the delivery was seen, or not at all. fn must not commit,
// roll back or keep tx. fn must not call another system, because such a call cannot be rolled back.
//
// After an error or a panic the delivery is retried: see [Mode]. Wrap an error in [pawl.Final] if
// no retry can help. To control the retry, see [job.RetryAfter], [job.Snooze] and [job.Cancel].
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

// Apply decodes a delivery and calls the function in a transaction of yours. It neither claims nor
// commits. Use it in tests, or in an endpoint of your own that claims with package inbox.
func (h TxHandler) Apply(ctx context.Context, tx pgx.Tx, d pawl.Delivery) error {
	if h.call == nil {
		return errNoHandler
	}
	return h.call(ctx, tx, []pawl.Delivery{d})
}

func (h TxHandler) settings() settings {
	return settings{form: single, Policy: h.policy.Policy, mode: h.policy.Mode, exclusive: h.policy.Exclusive, gate: h.policy.SequenceGate, tx: h.call}
}

// HandleManyTx makes the batch form: like [HandleTx], for many deliveries in one transaction. If fn
// fails, it is called again with each half, down to the deliveries that fail by themselves. Only
// those are stored for a retry. fn may see a delivery several times, but never twice in one
// committed transaction. A delivery with an ordering key or a semantic key is a batch of its own.
// The context of a batch carries no trace, because each delivery has its own.
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

// Handle makes the form without a transaction. A delivery is stored and acknowledged, then fn works
// on it under a lease. Use it for work that takes minutes or calls other systems.
//
// Writes of fn through [Attempt.Commit] take effect once. Make each call to another system a step
// (package step), and pass the [Attempt] as the step's owner. All else that fn does may happen
// again, since a crash runs fn again. Deliveries with the same SemanticKey run one after the other;
// after one has taken effect, the others are duplicates.
//
// If fn returns nil without a Commit, the delivery is done. After an error or a panic it is
// retried; see [job.RetryAfter], [job.Snooze], [job.Cancel] and [pawl.Final].
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

// Trigger makes the form for messages that only name an existing row: "process order 17". The row
// itself records whether the work was done, in place of the inbox. Build fn on package guard for a
// table of your own, or on [job.Worker.Process]. The SemanticKey is ignored: a second message finds
// the row processed.
//
// fn must return nil only if the database holds the outcome. The message is acknowledged if fn
// returns nil or one of these errors:
//
//   - [pawl.ErrAlreadyHandled]
//   - [pawl.ErrFailureRecorded]: the row holds the error; unless it is final, a sweeper retries it
//   - [pawl.ErrInProgress], if the error is [pawl.Swept]: a sweeper takes the row over
//
// After a final error ([pawl.IsFinal]) the message becomes a dead letter, and so does one whose
// payload does not decode. After any other error it is retried: from the source, or from the
// database if released messages hold up others there ([pawl.SourceInfo].ReleaseBlocks).
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

// decode decodes the payload. Its error is final, because a retry cannot change the payload.
func decode[T any](d pawl.Delivery) (m Message[T], err error) {
	m.Delivery = d
	if raw, ok := any(&m.Value).(*[]byte); ok {
		*raw = d.Payload
	} else if err = payload.Decode(d.Payload, &m.Value); err != nil {
		err = pawl.Final(fmt.Errorf("the payload of message %s does not fit %T: %w", d.MessageID, m.Value, err))
	}
	return m, err
}
