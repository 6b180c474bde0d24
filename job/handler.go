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
	Value T // from Payload, which is JSON; a T of []byte gets it as it is
}

// A Handler runs the jobs of one kind. It is your function, its form and its policy: a
// [SingleHandler] or a [ManyHandler]. Make it with [Handle] or another form, or with the methods of
// a [Definition].
type Handler interface {
	// Kind returns the kind of the jobs it runs.
	Kind() string
	// Queue returns the queue of its [Definition]; empty if it is of none.
	Queue() string
	settings() settings
}

// A SingleHandler is a handler for one job at a time, made by [Handle], [HandleTx], [HandleThenTx],
// [HandleSQL] or [HandleThenSQL].
type SingleHandler struct{ given settings }

// With returns the handler under a policy of its own.
func (h SingleHandler) With(p Policy) SingleHandler {
	h.given.policy = ManyPolicy{Policy: p}
	return h
}

// Policy returns the handler's policy, as it was given.
func (h SingleHandler) Policy() Policy { return h.given.policy.Policy }

// Kind returns the kind of the jobs it runs.
func (h SingleHandler) Kind() string { return h.given.kind }

// Queue returns the queue of its [Definition]; empty if it is of none.
func (h SingleHandler) Queue() string { return h.given.queue }

func (h SingleHandler) settings() settings { return h.given }

// A ManyHandler is a handler for many jobs at once, made by [HandleMany], [HandleManyTx] or
// [HandleManySQL].
type ManyHandler struct{ given settings }

// With returns the handler under a policy of its own.
func (h ManyHandler) With(p ManyPolicy) ManyHandler {
	h.given.policy = p
	return h
}

// Policy returns the handler's policy, as it was given.
func (h ManyHandler) Policy() ManyPolicy { return h.given.policy }

// Kind returns the kind of the jobs it runs.
func (h ManyHandler) Kind() string { return h.given.kind }

// Queue returns the queue of its [Definition]; empty if it is of none.
func (h ManyHandler) Queue() string { return h.given.queue }

func (h ManyHandler) settings() settings { return h.given }

// settings are what a worker knows of a handler.
type settings struct {
	kind   string
	queue  string // of its definition, if it is of one
	form   form
	policy ManyPolicy                                              // BatchSize is zero in the forms for one job
	call   call                                                    // in the form then it is what first returned
	first  func(ctx context.Context, j Job) (then call, err error) // of the form then; else nil
	sql    bool                                                    // its transactions lend a *sql.Tx
	empty  bool                                                    // a function is missing
	watch  *stopwatch                                              // of a worker's
}

// A call runs a handler. tx is nil in the simple forms.
type call func(ctx context.Context, tx pgx.Tx, jobs []Job) error

type form int

const (
	simple        form = iota + 1 // finished after the handler returned
	transactional                 // one job, finished in the handler's transaction
	batch                         // many jobs, finished in one transaction
	many                          // many jobs, those that succeeded finished after the handler returned
	then                          // one job: called without a transaction, then finished in one
)

// Policy is how one kind differs from the worker's settings. Its zero value differs in nothing.
type Policy struct {
	// Timeout cancels the handler's context; of a [HandleThenTx] that of call, and that of commit after 30 s at most. Default that of the
	// worker.
	Timeout time.Duration
	// Backoff between the tries of one job. Default that of the worker.
	Backoff Backoff
}

// ManyPolicy is the policy of [HandleMany], [HandleManyTx] and [HandleManySQL].
type ManyPolicy struct {
	Policy
	// BatchSize is the most jobs that one call is handed. More is faster until the transaction is
	// long. One failing job makes the batch of a [HandleManyTx] run again in halves. Default 100,
	// at most 500.
	BatchSize int
}

// Handle registers the simple form: fn runs without a transaction, and the job is finished after it returned nil. A crash
// in between runs the job again, so what fn does must bear repeating; for rows of yours in the same database use
// [HandleTx]. Long work and calls to others belong here.
//
// fn may end the job in a transaction of its own: [Job.Hold] first, [Job.Finish] before COMMIT. Then return nil if and only
// if that transaction committed.
//
// An error or a panic means another try; see [RetryAfter], [Snooze], [Cancel] and [pawl.Final] for other ends.
func Handle[T any](kind string, fn func(ctx context.Context, t Task[T]) error) SingleHandler {
	return SingleHandler{settings{kind: kind, form: simple, empty: fn == nil, call: func(ctx context.Context, _ pgx.Tx, jobs []Job) error {
		task, err := decodeOne[T](jobs[0])
		if err != nil {
			return err
		}
		return fn(ctx, task)
	}}}
}

// HandleTx registers the transactional form: the job ends in the transaction that fn is handed, before fn is called. What fn writes
// through tx and the end of the job commit together or not at all. Others see the job processing until then. fn must not commit or
// roll back tx, nor keep it, and nothing may leave the process while it runs.
//
// An error or a panic rolls the transaction back and means another try; see [RetryAfter], [Snooze], [Cancel] and [pawl.Final].
func HandleTx[T any](kind string, fn func(ctx context.Context, tx pgx.Tx, t Task[T]) error) SingleHandler {
	return SingleHandler{settings{kind: kind, form: transactional, empty: fn == nil, call: func(ctx context.Context, tx pgx.Tx, jobs []Job) error {
		task, err := decodeOne[T](jobs[0])
		if err != nil {
			return err
		}
		return fn(ctx, tx, task)
	}}}
}

// HandleManyTx registers the batch form: as [HandleTx], for many jobs in one transaction, sorted by id. If fn fails, its
// rows are rolled back and it is called again with each half, down to the jobs that fail by themselves: only they are
// charged. So it may see one job several times, never twice in one committed transaction. Of several jobs the context has no
// trace, as theirs differ; see [Job.Trace].
func HandleManyTx[T any](kind string, fn func(ctx context.Context, tx pgx.Tx, ts []Task[T]) error) ManyHandler {
	return ManyHandler{settings{kind: kind, form: batch, empty: fn == nil, call: func(ctx context.Context, tx pgx.Tx, jobs []Job) error {
		tasks, err := decode[T](jobs)
		if err != nil {
			return err
		}
		return fn(ctx, tx, tasks)
	}}}
}

// HandleMany registers the simple form for many jobs at once, where what fn calls takes many at a time: fn runs without a
// transaction, and the jobs that succeeded are finished after it returned. It answers with an error for each job, in their
// order, or nil if all succeeded; each is judged as if [Handle] had returned it. A crash runs all of them again.
//
// No two jobs of a call are of one lane. The context has no trace, as theirs differ; see [Job.Trace].
func HandleMany[T any](kind string, fn func(ctx context.Context, ts []Task[T]) []error) ManyHandler {
	return ManyHandler{settings{kind: kind, form: many, empty: fn == nil, call: func(ctx context.Context, _ pgx.Tx, jobs []Job) error {
		errs, tasks, places := make([]error, len(jobs)), make([]Task[T], 0, len(jobs)), make([]int, 0, len(jobs))
		for i, j := range jobs {
			task, err := decodeOne[T](j)
			if errs[i] = err; err == nil {
				tasks, places = append(tasks, task), append(places, i)
			}
		}
		if len(tasks) > 0 {
			answers := fn(ctx, tasks)
			if len(answers) != 0 && len(answers) != len(tasks) {
				return fmt.Errorf("the handler answered %d errors for %d jobs", len(answers), len(tasks))
			}
			for n, err := range answers {
				errs[places[n]] = err
			}
		}
		if errors.Join(errs...) == nil {
			return nil
		}
		return eachError(errs)
	}}}
}

// eachError is what became of each job of a HandleMany.
type eachError []error

func (e eachError) Error() string { return errors.Join(e...).Error() }

// decode fails for good: the same octets will not become JSON by waiting.
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

// A Call is one call of a handler, as middleware sees it.
type Call struct {
	Kind string
	Jobs []Job  // one, except in the forms for many
	Tx   pgx.Tx // nil in the forms without a transaction; in those for database/sql it is the transaction of the *sql.Tx
}

// Middleware runs around every call of a handler. It calls next, once, and returns its error or another. It is inside the
// handler's time limit, and what it writes through Call.Tx shares the handler's fate. Of a [HandleThenTx] it runs around call, without
// Tx, and around commit.
type Middleware func(ctx context.Context, c Call, next func(context.Context) error) error

// wrapped returns the call of h inside the middleware, the first outermost.
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
			jobs = slices.Clone(jobs) // what middleware changes is for the handler, and not for the worker
			return around(ctx, Call{h.kind, jobs, tx}, func(ctx context.Context) error { return inner(ctx, tx, jobs) })
		}
	}
	if first := h.first; first != nil {
		h.first = func(ctx context.Context, j Job) (then call, err error) {
			then = func(context.Context, pgx.Tx, []Job) error { return nil } // if middleware answers in its place
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
