package guard

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/conns"
	"github.com/pawl-go/pawl/internal/contract"
	"github.com/pawl-go/pawl/internal/fault"
	"github.com/pawl-go/pawl/internal/pace"
	"github.com/pawl-go/pawl/internal/txn"
	"github.com/pawl-go/pawl/internal/verdict"
)

// Work is called in the transaction that completes its row. It must not commit or roll back tx and
// must call no other system. Its result is stored in [Table].Result, if there is that column.
type Work func(ctx context.Context, tx pgx.Tx) (result any, err error)

const (
	// workTimeout bounds a Work: a long transaction holds back vacuum in the whole database.
	workTimeout  = 30 * time.Second
	abandonAfter = 5 * time.Second // how long a cancelled Work may take to return
	lockPatience = "2s"            // how long Once waits for the row's lock
	askAgain     = 5               // how often Once repeats after a lost reply to COMMIT
)

// Once takes a row from pending to completed in one transaction with its work. The UPDATE is the
// first statement, so a second attempt finds nothing to do. Use it for work of up to 30 s that
// calls no other system; otherwise use [Rows.Claim].
//
// Errors:
//   - [pawl.ErrAlreadyHandled]: the row is completed or holds an error. Acknowledge.
//   - [pawl.ErrFailureRecorded], which wraps the work's error: the row holds it.
//     Acknowledge; a [Sweeper] retries the row.
//   - [pawl.ErrInProgress]: another attempt has locked the row for 2 s or claimed it. Do not
//     acknowledge, unless [pawl.Swept].
//   - [pawl.ErrNotFound]: there is no such row. Never acknowledge.
//   - [pawl.ErrCommitUnknown]: the reply to COMMIT was lost and the row could not be read.
//     It may have committed: do not acknowledge.
//   - Other errors are the database's. Nothing was recorded: do not acknowledge.
//
// Work that loses its connection three times in a row, although the server answered when it began,
// may be crashing the server. The next call does not run it and records a failure instead.
func (r *Rows) Once(ctx context.Context, id any, work Work) (err error) {
	defer func() { conns.LeaveStandby(r.pool, err) }()
	t := try{alone: verdict.HeldIn(ctx)}
	defer t.exclusive.Release()
	err = r.untilKnown(ctx, id, func() error {
		err := r.once(ctx, id, work, &t)
		if !errors.Is(err, errCrowded) {
			return err
		}
		if err := t.exclusive.Acquire(ctx); err != nil {
			return pawl.Wrap("guard.complete", err)
		}
		t.alone = true
		return r.once(ctx, id, work, &t)
	})
	if t.lost {
		t.exclusive.Lost()
	}
	r.noteLosses(&t, err)
	return err
}

// A try is one call of Once.
type try struct {
	key       string // the row's id as the database prints it; "" until the row was taken
	lost      bool   // the work was lost with its connection
	alone     bool   // exclusive is held, here or by the caller
	exclusive verdict.Exclusive
}

// errCrowded means that the work must be run again under Exclusive, because its loss is charged.
var errCrowded = errors.New("the work must run alone")

// noteLosses counts work lost with its connection. A definite result of the row clears the count.
func (r *Rows) noteLosses(t *try, err error) {
	switch {
	case t.lost && errors.Is(err, pawl.ErrFailureRecorded):
		r.losses.Charged(t.key)
	case answers(err):
		r.losses.Over(t.key)
	case t.lost:
		r.losses.Lost(t.key)
	}
}

// untilKnown runs a transaction again after a lost race, and after a lost reply to COMMIT. After
// the latter, the row's status shows whether it committed.
func (r *Rows) untilKnown(ctx context.Context, id any, once func() error) (err error) {
	var lost error // the error of the unanswered COMMIT
	for asked := 0; asked <= askAgain; asked++ {
		err = txn.Restart(ctx, once)
		// The work ended the transaction, as SQL text. The row shows whether by COMMIT.
		if errors.Is(err, txn.ErrEnded) {
			return r.failLate(ctx, id, err)
		}
		switch {
		case pawl.MayHaveHappened(err):
			lost = err
		case lost == nil || answers(err):
			return err
		// An ErrInProgress is the old transaction, still open.
		case !errors.Is(err, pawl.ErrInProgress):
			return &pawl.Error{Op: "guard.complete", Code: pawl.CodeCommitUnknown, Err: errors.Join(lost, err)}
		}
		// The next attempt finds the row not pending if the COMMIT succeeded.
		if !pace.Sleep(ctx, 100*time.Millisecond<<asked) {
			return lost
		}
	}
	return lost
}

// answers reports whether err is a definite result of the row.
func answers(err error) bool {
	return err == nil || errors.Is(err, pawl.ErrAlreadyHandled) || errors.Is(err, pawl.ErrFailureRecorded) || errors.Is(err, pawl.ErrNotFound)
}

// once runs one transaction.
func (r *Rows) once(ctx context.Context, id any, work Work, t *try) error {
	taken := false
	tx, err := txn.Open(ctx, r.pool, "guard.complete", "", workTimeout+abandonAfter, func(b *pgx.Batch) {
		b.Queue("set local lock_timeout = '" + lockPatience + "'")
		b.Queue(r.sql.complete, id).QueryRow(func(row pgx.Row) error {
			err := row.Scan(&t.key)
			if taken = err == nil; errors.Is(err, pgx.ErrNoRows) {
				return nil
			}
			return err
		})
		b.Queue("set local lock_timeout to default")
	})
	if err != nil {
		return r.notHad(ctx, id, err)
	}
	defer txn.Rollback(ctx, tx)
	switch {
	case !taken:
		txn.Rollback(ctx, tx) // releases the connection before why waits for the standbys
		return r.why(ctx, id)
	case r.losses.Count(t.key) >= verdict.Bound:
		txn.Rollback(ctx, tx)
		t.lost = true
		return r.failLate(ctx, id, txn.Taken())
	case r.losses.Last(t.key) && !t.alone:
		txn.Rollback(ctx, tx)
		return errCrowded
	}
	if err := fault.At("guard.work.before"); err != nil {
		return err
	}
	var result any
	failure := tx.Guard(ctx, workTimeout, func(ctx context.Context, tx pgx.Tx) (err error) {
		result, err = work(ctx, tx)
		return err
	})
	if failure != nil {
		t.lost = t.lost || txn.Lost(failure)
		return r.fail(ctx, tx, id, failure)
	}
	if err := fault.At("guard.commit.before"); err != nil {
		return err
	}
	err = tx.CommitWith(context.WithoutCancel(ctx), "guard.complete", r.keep(id, result))
	t.lost = t.lost || txn.Lost(err)
	if err == nil || pawl.MayHaveHappened(err) || txn.LostRace(err) {
		return err
	}
	return r.failLate(ctx, id, err) // such as the error of a deferred constraint
}

// keep returns the statement that writes a result into its row, if the table has the column. Pawl's
// role runs it: a role that work has set may lack the privilege.
func (r *Rows) keep(id, result any) func(*pgx.Batch) {
	return func(b *pgx.Batch) {
		if result != nil && r.sql.result != "" {
			b.Queue(r.sql.result, id, result)
		}
	}
}

// fail writes the error in the transaction that has locked the row, after a rollback to its
// savepoint. No other attempt can take the row in between.
func (r *Rows) fail(ctx context.Context, tx *txn.Opened, id any, failure error) error {
	switch {
	case ctx.Err() != nil, txn.LostRace(failure), pawl.MayHaveHappened(failure):
		return failure
	case errors.Is(failure, txn.ErrLost) && pawl.Unreachable(failure):
		return failure
	case errors.Is(failure, txn.ErrLost):
		txn.Rollback(ctx, tx)
		return r.failLate(ctx, id, failure)
	}
	if _, err := tx.Exec(ctx, r.sql.fail, r.failed(id, failure)...); err != nil {
		return pawl.Wrap("guard.fail", err)
	}
	if err := txn.Commit(ctx, "guard.fail", tx); err != nil {
		return err
	}
	return recorded(failure)
}

// failLate writes the error in its own transaction, if the row is still pending.
func (r *Rows) failLate(ctx context.Context, id any, failure error) error {
	written, err := r.write(ctx, r.sql.failLate, r.failed(id, failure)...)
	switch {
	case err != nil:
		return err
	case !written:
		return r.why(ctx, id)
	}
	return recorded(failure)
}

// write runs a statement that writes an error into a row, and reports whether it changed one. It
// returns once the change is replicated.
func (r *Rows) write(ctx context.Context, statement string, args ...any) (written bool, err error) {
	var on string
	err = txn.Restart(ctx, func() error { return r.pool.QueryRow(ctx, statement, args...).Scan(&on) })
	conns.LeaveStandby(r.pool, err)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return false, nil
	case err != nil:
		return false, pawl.Wrap("guard.fail", err)
	}
	return true, txn.Replicated(ctx, r.pool, on)
}

func (r *Rows) failed(id any, failure error) []any {
	if r.table.LastError == None {
		return []any{id}
	}
	return []any{id, stored(failure)}
}

func recorded(failure error) error {
	return &pawl.Error{Op: "guard.fail", Code: pawl.CodeFailureRecorded, Err: failure}
}

// why returns the error for a row that is not pending, from a second read. The caller may
// acknowledge on it: with synchronous standbys, why waits until the status it read is replicated.
func (r *Rows) why(ctx context.Context, id any) error {
	var status, readOn string
	err := r.pool.QueryRow(ctx, r.sql.look, id).Scan(&status, &readOn)
	if err == nil {
		if err := txn.Replicated(ctx, r.pool, readOn); err != nil {
			return err
		}
	}
	e := &pawl.Error{Op: "guard.claim", Err: fmt.Errorf("row %v of %s is %s", id, r.table.Name, status)}
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		e.Code, e.Err = pawl.CodeNotFound, fmt.Errorf("row %v of %s", id, r.table.Name)
		e.Hint = "look for the transaction that should have written it, and for row level security that hides it from this role; do not acknowledge a message about it"
	case err != nil:
		return pawl.Wrap("guard.claim", err)
	case status == r.table.Completed, status == r.table.Error:
		e.Code = pawl.CodeAlreadyHandled
	case status == r.table.Processing && r.table.ClaimedAt != None && r.swept.running.Load() > 0:
		e.Code, e.Err = pawl.CodeInProgress, swept{e.Err}
	case status == r.table.Processing, status == r.table.Pending: // pending: just given back
		e.Code = pawl.CodeInProgress
	default:
		e.Code = pawl.CodeUnknownState
	}
	return e
}

// swept marks the error of a claimed row if a Sweeper runs here; see [pawl.Swept].
type swept struct{ error }

func (swept) Swept() bool { return true }

// notHad interprets a lock timeout: another transaction holds the row's lock, or the whole table is
// locked, which is no conflict about the row.
func (r *Rows) notHad(ctx context.Context, id any, err error) error {
	if !verdict.IsBusy(pawl.CodeOf(err)) {
		return err
	}
	if err = contract.LockedTable(ctx, r.pool, err, pgx.Identifier(strings.Split(r.table.Name, ".")).Sanitize()); errors.Is(err, contract.ErrTableLocked) {
		return err
	}
	return &pawl.Error{Op: "guard.claim", Code: pawl.CodeInProgress, Err: fmt.Errorf("row %v: %w", id, err)}
}
