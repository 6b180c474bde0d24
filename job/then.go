package job

import (
	"context"
	"database/sql"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/internal/fault"
	"github.com/pawl-go/pawl/internal/txn"
)

// HandleThenTx makes a handler for calls to another system whose result becomes rows of yours. call
// runs without a transaction, under the worker's lease. Its result is passed to commit, with a
// transaction that ends the job. The rows that commit writes and the end of the job commit
// together, and only if this attempt still owns the job. d describes the jobs: see [Define].
//
// If the process dies between call and the COMMIT, or if commit returns an error, the job runs
// again from call. For effects that must not repeat, run a step of package step inside call: a
// finished step is replayed from the database. If the transaction loses a race (40001, 40P01), only
// commit runs again, 8 tries in all, with the same value. So commit must not change the value.
//
// [Policy.Timeout] applies to call, and to commit with at most 30 s, because an open transaction
// holds back vacuum. An error or a panic in either schedules a retry; see [RetryAfter], [Snooze],
// [Cancel] and [pawl.Final]. A connection of the pool is used for commit only.
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
			t.Job = jobs[0] // with the lent transaction
			return commit(ctx, tx, t, value)
		}, nil
	}}})
}

// commitTimeout bounds the transaction of commit, even if the Timeout is longer.
const commitTimeout = 30 * time.Second

// executeThen runs call, then the transaction of commit. A crash in between costs a second call.
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
