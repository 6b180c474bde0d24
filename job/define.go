package job

import (
	"context"
	"database/sql"
	"time"

	"github.com/jackc/pgx/v5"
)

// Defaults are the common options of a [Definition]'s jobs. The zero value of each field is fit for
// production. The bounds are those of [Request].
type Defaults[T any] struct {
	// Queue is where the jobs wait. Default "default".
	Queue string
	// Key makes enqueueing idempotent: values with the same key enqueue one job, for Retention. A
	// value with the key "" always enqueues a new job. Default none.
	Key func(T) string
	// Retention is how long a key is remembered. Default 24 h.
	Retention time.Duration
	// Lane is the ordered sequence of a value's job; "" is none. Default none.
	Lane func(T) string
	// LanePolicy is what a lane does when its head becomes a dead letter. Default [LaneBlock].
	LanePolicy LanePolicy
	// MaxAttempts is the number of attempts before a job becomes a dead letter. Default 25.
	MaxAttempts int
	// Priority 1 is claimed first, 4 last. Default 2.
	Priority int
	// StartIn delays the first attempt. Default 0.
	StartIn time.Duration
}

// A Definition describes the jobs of one kind: their payload, queue, attempts and key. The code
// that enqueues and the worker both use it. Make it with [Define]. It may be a package variable and
// is safe for concurrent use.
type Definition[T any] struct {
	kind     string
	defaults Defaults[T]
}

// Define returns the definition of a kind. The payload is a T encoded as JSON, or the octets if T
// is []byte. Enqueue and [NewWorker] check the bounds.
func Define[T any](kind string, d Defaults[T]) Definition[T] {
	if d.Queue == "" {
		d.Queue = defaultQueue
	}
	return Definition[T]{kind, d}
}

const defaultQueue = "default"

// Kind returns the kind of the jobs.
func (d Definition[T]) Kind() string { return d.kind }

// Queue returns the queue in which the jobs wait.
func (d Definition[T]) Queue() string { return d.defaults.Queue }

// Request returns the request for one job, for instance to change its StartIn before [Enqueue].
func (d Definition[T]) Request(value T) Request {
	r := Request{Queue: d.defaults.Queue, Kind: d.kind, Retention: d.defaults.Retention, MaxAttempts: d.defaults.MaxAttempts,
		Priority: d.defaults.Priority, StartIn: d.defaults.StartIn}
	switch octets, raw := any(&value).(*[]byte); {
	case raw:
		r.Payload = *octets
	case any(value) == nil:
		r.Payload = []byte("null")
	default:
		r.Value = value
	}
	if d.defaults.Key != nil {
		r.Key = d.defaults.Key(value)
	}
	if d.defaults.Lane != nil {
		r.Lane = d.defaults.Lane(value)
	}
	if r.Lane != "" {
		r.LanePolicy = d.defaults.LanePolicy
	}
	return r
}

// Enqueue stores a job for the value: see the function [Enqueue]. db is a pool or your open pgx.Tx.
// For a *sql.Tx or the transaction of an ORM, pass pawl.SQL(tx).
func (d Definition[T]) Enqueue(ctx context.Context, db DB, value T) (Enqueued, error) {
	return Enqueue(ctx, db, d.Request(value))
}

// EnqueueMany stores jobs for up to 10,000 values, all or none: see the function [EnqueueMany].
func (d Definition[T]) EnqueueMany(ctx context.Context, db DB, values []T) ([]Enqueued, error) {
	requests := make([]Request, len(values))
	for i, v := range values {
		requests[i] = d.Request(v)
	}
	return EnqueueMany(ctx, db, requests)
}

// Handle is the function [Handle] for these jobs.
func (d Definition[T]) Handle(fn func(ctx context.Context, t Task[T]) error) SingleHandler {
	return d.single(Handle(d.kind, fn))
}

// HandleMany is the function [HandleMany] for these jobs.
func (d Definition[T]) HandleMany(fn func(ctx context.Context, ts []Task[T]) []error) ManyHandler {
	return d.many(HandleMany(d.kind, fn))
}

// HandleTx is the function [HandleTx] for these jobs.
func (d Definition[T]) HandleTx(fn func(ctx context.Context, tx pgx.Tx, t Task[T]) error) SingleHandler {
	return d.single(HandleTx(d.kind, fn))
}

// HandleManyTx is the function [HandleManyTx] for these jobs.
func (d Definition[T]) HandleManyTx(fn func(ctx context.Context, tx pgx.Tx, ts []Task[T]) error) ManyHandler {
	return d.many(HandleManyTx(d.kind, fn))
}

// HandleSQL is the function [HandleSQL] for these jobs.
func (d Definition[T]) HandleSQL(fn func(ctx context.Context, tx *sql.Tx, t Task[T]) error) SingleHandler {
	return d.single(HandleSQL(d.kind, fn))
}

// HandleManySQL is the function [HandleManySQL] for these jobs.
func (d Definition[T]) HandleManySQL(fn func(ctx context.Context, tx *sql.Tx, ts []Task[T]) error) ManyHandler {
	return d.many(HandleManySQL(d.kind, fn))
}

// single sets the definition's queue in a handler.
func (d Definition[T]) single(h SingleHandler) SingleHandler {
	h.given.queue = d.defaults.Queue
	return h
}

// many sets the definition's queue in a handler.
func (d Definition[T]) many(h ManyHandler) ManyHandler {
	h.given.queue = d.defaults.Queue
	return h
}
