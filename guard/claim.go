package guard

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/conns"
	"github.com/pawl-go/pawl/internal/contract"
	"github.com/pawl-go/pawl/internal/fault"
	"github.com/pawl-go/pawl/internal/txn"
)

// A Claimed row belongs to one attempt, from [Rows.Claim] until [Claimed.Commit] or [Claimed.Fail],
// or until a [Sweeper] takes the row back. It is a [pawl.Holder], so the work's calls of other
// systems can be steps of package step: after a crash, the next attempt finds those that ended.
type Claimed struct {
	rows  *Rows
	id    any
	key   string // the id as the database prints it
	table string // "public.orders"
	token time.Time
	over  atomic.Bool // it has ended, or its loss was reported
	doubt atomic.Bool // the reply to a Commit or Fail was lost, so it may have ended
}

// Claim takes a row from pending to processing and commits that. Use it for work that takes long or
// calls other systems: no transaction stays open. If this process dies, a [Sweeper] gives the row
// back. Claim therefore requires a running Sweeper in this process.
//
// If another transaction has locked the row, Claim waits as long as ctx and the login's
// lock_timeout allow. After a lost race (40001, 40P01) it runs again, 8 tries in all.
//
// Errors:
//   - [pawl.ErrAlreadyHandled]: the row is completed or holds an error. Acknowledge.
//   - [pawl.ErrInProgress]: another attempt has claimed the row or just given it back. Do
//     not acknowledge, unless [pawl.Swept].
//   - [pawl.ErrNotFound]: there is no such row. Never acknowledge.
//   - [pawl.ErrArgumentInvalid]: the table has no column ClaimedAt, or no Sweeper runs here.
//   - [pawl.ErrUnknownState]: the row has a status that the Table does not name.
//   - Other errors are the database's. Do not acknowledge. If the reply was lost, the row
//     may be claimed; a Sweeper gives it back.
func (r *Rows) Claim(ctx context.Context, id any) (*Claimed, error) {
	if r.table.ClaimedAt == None {
		return nil, &pawl.Error{Op: "guard.claim", Code: pawl.CodeArgumentInvalid, Err: errors.New("a claim needs the column ClaimedAt: it is the claim's token")}
	}
	if r.swept.running.Load() == 0 {
		return nil, &pawl.Error{Op: "guard.claim", Code: pawl.CodeArgumentInvalid,
			Err:  fmt.Errorf("no Sweeper runs for %s: if this process died, the row would stay claimed", r.table.Name),
			Hint: "start the Run of a Sweeper first"}
	}
	c := &Claimed{rows: r, id: id}
	err := txn.Restart(ctx, func() error { return r.pool.QueryRow(ctx, r.sql.claim, id).Scan(&c.token, &c.key, &c.table) })
	conns.LeaveStandby(r.pool, err)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil, r.why(ctx, id)
	case err != nil:
		return nil, pawl.Wrap("guard.claim", err)
	}
	return c, nil
}

// Commit runs work and completes the row in one transaction. It locks the row under this claim's
// token first, so an attempt whose row was taken back stops before it writes. After a lost race
// (40001, 40P01) the transaction runs again, work included, 8 tries in all.
//
// Errors: [pawl.ErrFenceLost] if the row was taken back; the Sweeper's Hooks get an event. The
// work's own error: pass it to Fail. In both cases nothing was written. [pawl.ErrCommitUnknown] if
// the reply to COMMIT was lost: call Fail, or Commit again. If the row was completed, the error is
// then [pawl.ErrAlreadyHandled].
func (c *Claimed) Commit(ctx context.Context, work Work) error {
	err := txn.Restart(ctx, func() error { return c.commit(ctx, work) })
	conns.LeaveStandby(c.rows.pool, err)
	switch {
	case err == nil:
		c.over.Store(true)
	case pawl.MayHaveHappened(err):
		c.doubt.Store(true)
	}
	return err
}

func (c *Claimed) commit(ctx context.Context, work Work) error {
	tx, err := txn.Begin(ctx, c.rows.pool, "guard.complete", workTimeout+abandonAfter)
	if err != nil {
		return err
	}
	defer txn.Rollback(ctx, tx)
	tag, err := tx.Exec(ctx, c.rows.sql.settle, c.id, c.token)
	if err != nil {
		return pawl.Wrap("guard.complete", err)
	}
	if tag.RowsAffected() == 0 {
		txn.Rollback(ctx, tx) // lost may ask on another connection
		return c.lost(ctx, "guard.complete")
	}
	var result any
	err = tx.Guard(ctx, workTimeout, func(ctx context.Context, tx pgx.Tx) (err error) {
		result, err = work(ctx, tx)
		return err
	})
	if err != nil {
		return err
	}
	if err := fault.At("guard.commit.before"); err != nil {
		return err
	}
	return tx.CommitWith(context.WithoutCancel(ctx), "guard.complete", c.rows.keep(c.id, result))
}

// Hold checks in a transaction of yours that this attempt still owns the row, and locks the row
// until the transaction ends: see [pawl.Holder]. [Claimed.Commit] checks it itself.
//
// Errors: [pawl.ErrFenceLost] if the row was taken back; the Sweeper's Hooks get an event.
func (c *Claimed) Hold(ctx context.Context, tx pawl.Tx) error {
	err := tx.QueryRow(ctx, c.rows.sql.hold, c.id, c.token).Scan(new(bool))
	if errors.Is(err, pgx.ErrNoRows) || errors.Is(err, sql.ErrNoRows) {
		return c.late(ctx, "guard.hold") // lost would ask on a second connection
	}
	return pawl.Wrap("guard.hold", err)
}

// Owner returns the owner of the row's steps, for package step: the table with its schema, and the
// id as text. It is the same at every attempt. If another database has a row with this id and uses
// the same account of a provider, set [step.Step].Key, or both send the same idempotency key. A new
// row with the id of a deleted one finds the steps of that one.
//
// [step.Step]: https://pkg.go.dev/github.com/pawl-go/pawl/step#Step
func (c *Claimed) Owner() pawl.Owner { return contract.OwnerOf("guard", c.table, c.key, 0) }

// Fail writes the attempt's error into the row. It then returns [pawl.ErrFailureRecorded], which
// wraps failure, or [pawl.ErrFenceLost] if the row was taken back. If an earlier Commit or Fail of
// this claim has ended the row, and its reply was lost, Fail returns [pawl.ErrAlreadyHandled].
func (c *Claimed) Fail(ctx context.Context, failure error) error {
	args := []any{c.id, c.token}
	if c.rows.table.LastError != None {
		args = append(args, stored(failure))
	}
	written, err := c.rows.write(ctx, c.rows.sql.refuse, args...)
	switch {
	case err != nil:
		if written || !txn.Refused(err) {
			c.doubt.Store(true)
		}
		return err
	case !written:
		return c.lost(ctx, "guard.fail")
	}
	c.over.Store(true)
	return recorded(failure)
}
