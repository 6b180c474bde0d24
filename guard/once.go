package guard

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/conns"
	"github.com/pawl-go/pawl/internal/contract"
	"github.com/pawl-go/pawl/internal/fault"
	"github.com/pawl-go/pawl/internal/pace"
	"github.com/pawl-go/pawl/internal/txn"
	"github.com/pawl-go/pawl/internal/verdict"
)

// Work is what is to be done once for a row, in the transaction that it is handed. It must not commit or roll back tx, and
// nothing may leave the process meanwhile. What it returns is kept in [Table].Result, if there is that column.
type Work func(ctx context.Context, tx pgx.Tx) (result any, err error)

const (
	workTimeout  = 30 * time.Second // of a Work; a transaction open for long holds back vacuum for the whole database
	abandonAfter = 5 * time.Second  // how long a cancelled Work may take to notice
	lockPatience = "2s"             // for the row, while another transaction works on it
	askAgain     = 5                // how often a lost reply to COMMIT is asked about
)

// Once takes a row from pending to completed in one transaction with its work: the UPDATE is the first statement, so whoever comes
// second finds nothing to do. For work of up to 30 s that calls nobody else; see [Rows.Claim] for the rest.
//
// Errors: [pawl.ErrAlreadyHandled]: the row is completed or holds an error, acknowledge. [pawl.ErrFailureRecorded] around the
// work's own error: the row holds it now, acknowledge; a [Sweeper] drives it again. [pawl.ErrInProgress]: somebody works on it
// for longer than 2 s, or has claimed it: do not acknowledge, unless [pawl.Swept]. [pawl.ErrNotFound]: never acknowledge.
// [pawl.ErrCommitUnknown]: the reply to COMMIT was lost, and the row could not be asked: do not acknowledge, it may have happened. Others are the
// database's: nothing is recorded, do not acknowledge.
//
// Work that loses its connection three times in a row, although the server answered when it began, may
// be what takes the server down. The next call does not run it, and writes that into the row.
func (r *Rows) Once(ctx context.Context, id any, work Work) (err error) {
	defer func() { conns.LeaveStandby(r.pool, err) }()
	key := fmt.Sprint(id)
	if r.losses.Count(key) >= verdict.Bound {
		err = r.failLate(ctx, id, txn.Taken())
		r.noteLosses(key, err, true)
		return err
	}
	var exclusive verdict.Exclusive
	defer exclusive.Release()
	if r.losses.Last(key) && !verdict.HeldIn(ctx) {
		if err := exclusive.Acquire(ctx); err != nil {
			return pawl.Wrap("guard.complete", err)
		}
	}
	lost := false
	err = r.untilKnown(ctx, id, func() error { return r.once(ctx, id, work, &lost) })
	if lost {
		exclusive.Lost()
	}
	r.noteLosses(key, err, lost)
	return err
}

// noteLosses counts work that was lost with its connection, and forgets its losses when the row says
// what became of it.
func (r *Rows) noteLosses(key string, err error, lost bool) {
	switch {
	case lost && errors.Is(err, pawl.ErrFailureRecorded):
		r.losses.Charged(key)
	case answers(err):
		r.losses.Over(key)
	case lost:
		r.losses.Lost(key)
	}
}

// untilKnown runs a transaction again after a lost race, and after a COMMIT without an answer: the
// row then says whether it took effect.
func (r *Rows) untilKnown(ctx context.Context, id any, once func() error) (err error) {
	var lost error // of the COMMIT that went unanswered
	for asked := 0; asked <= askAgain; asked++ {
		err = txn.Restart(ctx, once)
		if errors.Is(err, txn.ErrEnded) { // by the work, as text: the row says whether it was by COMMIT
			return r.failLate(ctx, id, err)
		}
		switch {
		case pawl.MayHaveHappened(err):
			lost = err
		case lost == nil || answers(err):
			return err
		case !errors.Is(err, pawl.ErrInProgress): // else it is the old transaction
			return &pawl.Error{Op: "guard.complete", Code: pawl.CodeCommitUnknown, Err: errors.Join(lost, err)}
		}
		if !pace.Sleep(ctx, 100*time.Millisecond<<asked) { // the row has the answer: not pending any more, or not completed
			return lost
		}
	}
	return lost
}

// answers reports whether an error says what became of the row.
func answers(err error) bool {
	return err == nil || errors.Is(err, pawl.ErrAlreadyHandled) || errors.Is(err, pawl.ErrFailureRecorded) || errors.Is(err, pawl.ErrNotFound)
}

// once is one transaction. It sets lost if the work was lost with its connection.
func (r *Rows) once(ctx context.Context, id any, work Work, lost *bool) error {
	var taken int64
	tx, err := txn.Open(ctx, r.pool, "guard.complete", "", workTimeout+abandonAfter, func(b *pgx.Batch) {
		b.Queue("set local lock_timeout = '" + lockPatience + "'")
		b.Queue(r.sql.complete, id).Exec(func(tag pgconn.CommandTag) error {
			taken = tag.RowsAffected()
			return nil
		})
		b.Queue("set local lock_timeout to default")
	})
	if err != nil {
		return r.notHad(ctx, id, err)
	}
	defer txn.Rollback(ctx, tx)
	if taken == 0 {
		txn.Rollback(ctx, tx) // it holds no connection while it waits for the standbys
		return r.why(ctx, id)
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
		*lost = *lost || txn.Lost(failure)
		return r.fail(ctx, tx, id, failure)
	}
	if err := fault.At("guard.commit.before"); err != nil {
		return err
	}
	err = tx.CommitWith(context.WithoutCancel(ctx), "guard.complete", r.keep(id, result))
	*lost = *lost || txn.Lost(err)
	if err == nil || pawl.MayHaveHappened(err) || txn.LostRace(err) {
		return err
	}
	return r.failLate(ctx, id, err) // a deferred constraint, for instance
}

// keep is the statement that writes a result into its row, if there is a column for it. It is
// Pawl's own: the role that work may have set need not write to the table.
func (r *Rows) keep(id, result any) func(*pgx.Batch) {
	return func(b *pgx.Batch) {
		if result != nil && r.sql.result != "" {
			b.Queue(r.sql.result, id, result)
		}
	}
}

// fail writes the error into the row that this transaction has taken, its savepoint rolled back: nobody can win in between.
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

// failLate writes the error in a transaction of its own, if the row is still pending: somebody may have completed it.
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

// write sends a statement of its own that writes an error into a row, and reports whether there was
// one to write to. It returns once that is replicated.
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

// why says what became of a row that is not pending, by a second read. Whoever is told so may acknowledge: with synchronous standbys
// it is said once what was read is replicated.
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
		e.Hint = "look for the transaction that should have written it, and for row level security that hides it from this role; the message stays"
	case err != nil:
		return pawl.Wrap("guard.claim", err)
	case status == r.table.Completed, status == r.table.Error:
		e.Code = pawl.CodeAlreadyHandled
	case status == r.table.Processing && r.table.ClaimedAt != None && r.swept.running.Load() > 0:
		e.Code, e.Err = pawl.CodeInProgress, swept{e.Err}
	case status == r.table.Processing, status == r.table.Pending: // pending: it has just been given back
		e.Code = pawl.CodeInProgress
	default:
		e.Code = pawl.CodeUnknownState
	}
	return e
}

// swept says of a claimed row that a Sweeper runs here; see [pawl.Swept].
type swept struct{ error }

func (swept) Swept() bool { return true }

// notHad turns "not locked in time" into what it means: another transaction works on the row, or
// the table is locked as a whole, which says nothing about the row.
func (r *Rows) notHad(ctx context.Context, id any, err error) error {
	if !verdict.IsBusy(pawl.CodeOf(err)) {
		return err
	}
	if err = contract.LockedTable(ctx, r.pool, err, pgx.Identifier(strings.Split(r.table.Name, ".")).Sanitize()); errors.Is(err, contract.ErrTableLocked) {
		return err
	}
	return &pawl.Error{Op: "guard.claim", Code: pawl.CodeInProgress, Err: fmt.Errorf("row %v: %w", id, err)}
}
