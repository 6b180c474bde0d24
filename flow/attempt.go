package flow

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/internal/fault"
	"github.com/pawl-go/pawl/internal/txn"
	"github.com/pawl-go/pawl/job"
)

// A LongHandler works on one delivery under a lease, with no transaction open: for work that takes minutes or must call others.
// What it writes through [Attempt.Commit] takes effect once; what it does elsewhere is a step of package effect, whose owner is the
// [Attempt], or must bear repeating, since a crash runs it again.
//
// Returning nil without a Commit settles the delivery. An error or a panic means another try; see [job.RetryAfter], [job.Snooze],
// [job.Cancel] and [pawl.Final].
type LongHandler func(ctx context.Context, a *Attempt) error

// An Attempt is one try of a [LongHandler]. It is that handler's alone: not to be used from several goroutines at once.
type Attempt struct {
	pawl.Delivery

	flow    *Flow
	job     job.Job
	ended   bool
	failure error
}

// Number counts the tries of this delivery from 1.
func (a *Attempt) Number() int { return a.job.Attempt }

// Fence grows with every attempt; pass it to whatever must refuse a stale one, for instance through [guard.AcceptFence].
//
// [guard.AcceptFence]: https://pkg.go.dev/github.com/pawl-go/pawl/guard#AcceptFence
func (a *Attempt) Fence() int64 { return a.job.Fence }

// Hold proves, in a transaction of yours, that this attempt still owns the delivery, and locks it until the end of that transaction:
// see [pawl.Holder]. [Attempt.Commit] does so by itself.
//
// Errors: [pawl.ErrFenceLost].
func (a *Attempt) Hold(ctx context.Context, tx pawl.Tx) error { return a.job.Hold(ctx, tx) }

// Owner is the same at every attempt of the delivery: see package effect.
func (a *Attempt) Owner() pawl.Owner {
	return pawl.OwnerOf("inbox", a.flow.cfg.Consumer, text(a.job.Headers, headerInboxKey), a.job.ID)
}

// Job is the id of the job that owns the delivery, for logs and operators.
func (a *Attempt) Job() int64 { return a.job.ID }

// commitTimeout bounds the transaction of an attempt: it holds back vacuum, as every open one does, however long the work before it.
const commitTimeout = 30 * time.Second

// Commit runs fn, for 30 s at most, in a transaction that first proves that this attempt still owns the delivery and last settles it: what fn
// writes and the end of the delivery commit together or not at all. Call it once, last, and return its error. If the delivery's
// SemanticKey took effect meanwhile, fn is not run, and the delivery is settled.
//
// Errors: [pawl.ErrFenceLost]: a newer attempt owns the delivery, nothing was written; fn's own.
func (a *Attempt) Commit(ctx context.Context, fn func(ctx context.Context, tx pgx.Tx) error) error {
	if a.ended || a.failure != nil {
		return &pawl.Error{Op: "flow.commit", Code: pawl.CodeArgumentInvalid, Err: errors.New("Commit was called before")}
	}
	a.failure = a.commit(ctx, fn)
	a.ended = a.failure == nil
	return a.failure
}

func (a *Attempt) commit(ctx context.Context, fn func(ctx context.Context, tx pgx.Tx) error) error {
	tx, err := txn.Begin(ctx, a.flow.pool, "flow.begin", commitTimeout+abandonAfter)
	if err != nil {
		return err
	}
	defer txn.Rollback(ctx, tx)
	if err := a.job.Hold(ctx, tx); err != nil {
		return err
	}
	if err := a.flow.settle(ctx, tx, a.job); err != nil {
		return err
	}
	p, err := a.flow.unlessRepeated(ctx, tx, a.Delivery, text(a.job.Headers, headerInboxKey), func() error {
		return tx.Guard(ctx, commitTimeout, fn)
	})
	if err != nil {
		return err
	}
	if err := a.job.Finish(ctx, tx); err != nil {
		return err
	}
	if err := fault.At("long.commit.before"); err != nil {
		return err
	}
	if err := txn.Commit(ctx, "flow.commit", tx); err != nil {
		return err
	}
	if p.verdict == repeated {
		a.flow.emitOf(ctx, a.Delivery, pawl.Event{Kind: pawl.EventDuplicateSkipped, Op: "flow.semantic", JobID: a.job.ID})
	}
	return nil
}

// work runs the long handler on a landed delivery. It returns nil only if the transaction that settled it has committed.
func (f *Flow) work(ctx context.Context, t job.Task[[]byte]) error {
	a := &Attempt{Delivery: landedDelivery(t.Job), flow: f, job: t.Job}
	if err := f.cfg.LongHandler(ctx, a); err != nil {
		return err
	}
	if a.ended || a.failure != nil {
		return a.failure
	}
	return a.Commit(ctx, func(context.Context, pgx.Tx) error { return nil })
}

// settle marks the inbox row of a landed delivery processed. If the job owns the delivery no more there is nothing left to try.
func (f *Flow) settle(ctx context.Context, tx pgx.Tx, j job.Job) error {
	err := inbox.Settle(ctx, tx, f.cfg.Consumer, text(j.Headers, headerInboxKey), j.ID)
	if errors.Is(err, pawl.ErrFenceLost) {
		return pawl.Final(err)
	}
	return err
}
