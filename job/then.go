package job

import (
	"context"
	"database/sql"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/internal/fault"
	"github.com/pawl-go/pawl/internal/txn"
)

// HandleThenTx registers the form for a call of another system whose answer becomes rows of yours.
// call runs without a transaction, under the worker's lease. What it returns is handed to commit,
// with a transaction that ends the job: the rows that commit writes and the end of the job commit
// together or not at all, and only if this attempt still owns the job. d says what the jobs are:
// see [Define].
//
// If the process dies after call has returned and before the commit, the job runs again, and call with it. So it does if commit returns an
// error. What must not be called twice is a step of package step, run inside of call: a step that has ended answers from the database. If the
// transaction loses a race (40001, 40P01), only commit runs again, with the same value, at most 8 times: it must not change what the value
// points to.
//
// [Policy.Timeout] bounds call. commit has as long, and 30 s at most, because an open transaction holds back vacuum. An error or a panic in
// either means another try; see [RetryAfter], [Snooze], [Cancel] and [pawl.Final]. A connection of the pool is taken for commit only.
func HandleThenTx[T, V any](d Definition[T], call func(ctx context.Context, t Task[T]) (V, error), commit func(ctx context.Context, tx pgx.Tx, t Task[T], value V) error) SingleHandler {
	h := handleThen(d, call, commit)
	h.given.empty = call == nil || commit == nil
	return h
}

// HandleThenSQL is [HandleThenTx] for database/sql: see [HandleSQL].
func HandleThenSQL[T, V any](d Definition[T], call func(ctx context.Context, t Task[T]) (V, error), commit func(ctx context.Context, tx *sql.Tx, t Task[T], value V) error) SingleHandler {
	h := handleThen(d, call, func(ctx context.Context, tx pgx.Tx, t Task[T], value V) error {
		return txn.LendSQL(ctx, tx, func(tx *sql.Tx) error { return commit(ctx, tx, t, value) })
	})
	h.given.sql, h.given.empty = true, call == nil || commit == nil
	return h
}

func handleThen[T, V any](d Definition[T], work func(context.Context, Task[T]) (V, error), commit func(context.Context, pgx.Tx, Task[T], V) error) SingleHandler {
	return d.single(SingleHandler{settings{kind: d.kind, form: then, first: func(ctx context.Context, j Job) (call, error) {
		t, err := decodeOne[T](j)
		if err != nil {
			return nil, err
		}
		value, err := work(ctx, t)
		if err != nil {
			return nil, err
		}
		return func(ctx context.Context, tx pgx.Tx, jobs []Job) error {
			t.Job = jobs[0] // as it is lent the transaction
			return commit(ctx, tx, t, value)
		}, nil
	}}})
}

// commitTimeout bounds the transaction behind a call, however long that took.
const commitTimeout = 30 * time.Second

// executeThen calls the handler, then runs the transaction that ends the job with what the handler
// returned. A crash in between costs a second call.
func (a *attempt) executeThen() {
	if err := fault.At("job.handle.before"); err != nil {
		a.w.settle(a.s.ctx, a.jobs[0], err)
		return
	}
	a.jobs[0].tied = true
	h := *a.h
	returned := a.watch(a.jobs)
	err := txn.Run(traceOf(a, a.jobs), h.policy.Timeout, func(ctx context.Context) (err error) {
		h.call, err = h.first(ctx, a.jobs[0])
		return err
	})
	returned()
	if err != nil {
		a.unfinished(a.jobs[0], err)
		return
	}
	h.policy.Timeout = min(h.policy.Timeout, commitTimeout)
	a.h = &h
	a.executeTx()
}
