package job

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/payload"
)

// A Task is one attempt with its payload decoded.
type Task[T any] struct {
	Job
	Value T // decoded from the JSON in Payload; a []byte gets the octets unchanged
}

// A Handler runs the jobs of one kind: your function with its form and policy. Make it with
// [Handle] or another form, or with the methods of a [Definition].
type Handler interface {
	// Kind returns the kind of the jobs it runs.
	Kind() string
	// Queue returns the queue of the handler's [Definition], or "" without one.
	Queue() string
	settings() settings
}

// A SingleHandler is a handler for one job at a time, made by [Handle], [HandleTx] and others.
type SingleHandler struct{ given settings }

// With returns the handler with policy p.
func (h SingleHandler) With(p Policy) SingleHandler {
	h.given.policy = ManyPolicy{Policy: p}
	return h
}

// Policy returns the handler's policy, without defaults.
func (h SingleHandler) Policy() Policy { return h.given.policy.Policy }

// Kind returns the kind of the jobs it runs.
func (h SingleHandler) Kind() string { return h.given.kind }

// Queue returns the queue of the handler's [Definition], or "" without one.
func (h SingleHandler) Queue() string { return h.given.queue }

func (h SingleHandler) settings() settings { return h.given }

// A ManyHandler is a handler for many jobs, made by [HandleMany], [HandleManyTx] or
// [HandleManySQL].
type ManyHandler struct{ given settings }

// With returns the handler with policy p.
func (h ManyHandler) With(p ManyPolicy) ManyHandler {
	h.given.policy = p
	return h
}

// Policy returns the handler's policy, without defaults.
func (h ManyHandler) Policy() ManyPolicy { return h.given.policy }

// Kind returns the kind of the jobs it runs.
func (h ManyHandler) Kind() string { return h.given.kind }

// Queue returns the queue of the handler's [Definition], or "" without one.
func (h ManyHandler) Queue() string { return h.given.queue }

func (h ManyHandler) settings() settings { return h.given }

// settings are a handler's function, form and policy, as the worker uses them.
type settings struct {
	kind   string
	queue  string // of its definition, or ""
	form   form
	policy ManyPolicy // BatchSize is zero in the forms for one job
	call   call       // in the form then, returned by first
	// first is only in the form then.
	first func(ctx context.Context, j Job) (then call, err error)
	sql   bool       // lends a *sql.Tx
	empty bool       // a function is missing
	watch *stopwatch // set by timed
}

// A call runs a handler. tx is nil in the forms without a transaction.
type call func(ctx context.Context, tx pgx.Tx, jobs []Job) error

type form int

const (
	simple        form = iota + 1 // one job, finished after the handler returned
	transactional                 // one job, finished in the handler's transaction
	// many jobs; those that succeeded are finished after the handler returned
	many
	transactionalMany // many jobs, finished in the handler's transaction
	then              // one job: called without a transaction, then finished in one
)

// Policy overrides the worker's settings for one kind. The zero value overrides nothing.
type Policy struct {
	// Timeout cancels the handler's context. The commit of a [HandleThenTx] has at most 30 s.
	// Default the worker's.
	Timeout time.Duration
	// Backoff is the wait between the attempts of one job. Default the worker's.
	Backoff Backoff
}

// ManyPolicy is the policy of [HandleMany], [HandleManyTx] and [HandleManySQL].
type ManyPolicy struct {
	Policy
	// BatchSize is the most jobs in one call. Larger is faster until the transaction becomes long.
	// If one job fails, a [HandleManyTx] runs again in halves. Default 100, at most 500.
	BatchSize int
}

// Handle makes a handler of the simple form: fn runs without a transaction, and the job is finished
// after fn returns nil. A crash in between runs the job again, so the work of fn must be
// repeatable. Use it for long work and calls to other systems. For rows in the same database use
// [HandleTx].
//
// fn may end the job in its own transaction: call [Job.Hold] first and [Job.Finish] before COMMIT.
// Then return nil if and only if that transaction committed.
//
// An error or a panic schedules a retry; see [RetryAfter], [Snooze], [Cancel] and [pawl.Final].
func Handle[T any](kind string, fn func(ctx context.Context, t Task[T]) error) SingleHandler {
	return SingleHandler{settings{kind: kind, form: simple, empty: fn == nil, call: func(ctx context.Context, _ pgx.Tx, jobs []Job) error {
		task, err := decodeOne[T](jobs[0])
		if err != nil {
			return err
		}
		return fn(ctx, task)
	}}}
}

// HandleTx makes a handler of the transactional form: the job ends in the transaction that fn is
// lent, before fn is called. The rows that fn writes through tx and the end of the job commit
// together. Until then, others see the job as processing. fn must not commit or roll back tx, must
// not keep it, and must not call other systems.
//
// An error or a panic rolls the transaction back and schedules a retry. See [RetryAfter], [Snooze],
// [Cancel] and [pawl.Final].
func HandleTx[T any](kind string, fn func(ctx context.Context, tx pgx.Tx, t Task[T]) error) SingleHandler {
	return SingleHandler{settings{kind: kind, form: transactional, empty: fn == nil, call: func(ctx context.Context, tx pgx.Tx, jobs []Job) error {
		task, err := decodeOne[T](jobs[0])
		if err != nil {
			return err
		}
		return fn(ctx, tx, task)
	}}}
}

// HandleManyTx is [HandleTx] for many jobs in one transaction, sorted by id. If fn fails, its rows
// are rolled back and it is called again with each half. Only jobs that fail alone are charged. fn
// may see a job several times, but never twice in one committed transaction. With several jobs the
// context has no trace; see [Job.Trace].
func HandleManyTx[T any](kind string, fn func(ctx context.Context, tx pgx.Tx, ts []Task[T]) error) ManyHandler {
	return ManyHandler{settings{kind: kind, form: transactionalMany, empty: fn == nil, call: func(ctx context.Context, tx pgx.Tx, jobs []Job) error {
		tasks, err := decode[T](jobs)
		if err != nil {
			return err
		}
		return fn(ctx, tx, tasks)
	}}}
}

// HandleMany makes a handler of the simple form for many jobs in one call. Use it if the system
// that fn calls accepts many items at a time. fn runs without a transaction, and the jobs that
// succeeded are finished after it returns. fn returns one error for each job, in their order, or
// nil if all succeeded. Each error has the effect that it has in [Handle]. A crash runs all jobs
// again.
//
// No two jobs of a call are of one lane. The context has no trace; see [Job.Trace].
func HandleMany[T any](kind string, fn func(ctx context.Context, ts []Task[T]) []error) ManyHandler {
	return ManyHandler{settings{kind: kind, form: many, empty: fn == nil, call: func(ctx context.Context, _ pgx.Tx, jobs []Job) error {
		errs, tasks, indexes := make([]error, len(jobs)), make([]Task[T], 0, len(jobs)), make([]int, 0, len(jobs))
		for i, j := range jobs {
			task, err := decodeOne[T](j)
			if errs[i] = err; err == nil {
				tasks, indexes = append(tasks, task), append(indexes, i)
			}
		}
		if len(tasks) > 0 {
			results := fn(ctx, tasks)
			if len(results) != 0 && len(results) != len(tasks) {
				return fmt.Errorf("the handler returned %d errors for %d jobs", len(results), len(tasks))
			}
			for n, err := range results {
				errs[indexes[n]] = err
			}
		}
		if errors.Join(errs...) == nil {
			return nil
		}
		return eachError(errs)
	}}}
}

// eachError holds one error for each job of a HandleMany.
type eachError []error

func (e eachError) Error() string { return errors.Join(e...).Error() }

// decode returns a final error, because a payload that does not decode will not decode later.
func decode[T any](jobs []Job) ([]Task[T], error) {
	tasks := make([]Task[T], len(jobs))
	for i, j := range jobs {
		var err error
		if tasks[i], err = decodeOne[T](j); err != nil {
			return nil, err
		}
	}
	return tasks, nil
}

func decodeOne[T any](j Job) (t Task[T], err error) {
	t.Job = j
	if raw, ok := any(&t.Value).(*[]byte); ok {
		*raw = j.Payload
	} else if err = payload.Decode(j.Payload, &t.Value); err != nil {
		err = pawl.Final(fmt.Errorf("the payload of job %d does not fit %T: %w", j.ID, t.Value, err))
	}
	return t, err
}

// A Call is one call of a handler, as seen by middleware.
type Call struct {
	Kind string
	Jobs []Job // one, except in the forms for many jobs
	// Tx is nil in the forms without a transaction, and that of the *sql.Tx for database/sql.
	Tx pgx.Tx
}

// Middleware runs around every call of a handler. It calls next once and returns the error of next
// or another. It runs within the handler's Timeout, and its writes through Call.Tx commit or roll
// back with the handler's. For a [HandleThenTx] it runs around call, without Tx, and around commit.
type Middleware func(ctx context.Context, c Call, next func(context.Context) error) error

// wrapped returns h with its call inside the middleware, the first outermost.
func (h settings) wrapped(all []Middleware) settings {
	if len(all) == 0 {
		return h
	}
	around := func(ctx context.Context, c Call, next func(context.Context) error) error {
		for i := len(all) - 1; i >= 0; i-- {
			around, further := all[i], next
			next = func(ctx context.Context) error { return around(ctx, c, further) }
		}
		return next(ctx)
	}
	inside := func(inner call) call {
		return func(ctx context.Context, tx pgx.Tx, jobs []Job) error {
			// Middleware may change the jobs for the handler, but not for the worker.
			jobs = slices.Clone(jobs)
			return around(ctx, Call{h.kind, jobs, tx}, func(ctx context.Context) error { return inner(ctx, tx, jobs) })
		}
	}
	if first := h.first; first != nil {
		h.first = func(ctx context.Context, j Job) (then call, err error) {
			// If middleware does not call next.
			then = func(context.Context, pgx.Tx, []Job) error { return nil }
			err = around(ctx, Call{h.kind, []Job{j}, nil}, func(ctx context.Context) error {
				commit, err := first(ctx, j)
				if err == nil {
					then = commit
				}
				return err
			})
			return inside(then), err
		}
		return h
	}
	h.call = inside(h.call)
	return h
}
