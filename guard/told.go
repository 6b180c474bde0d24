package guard

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/conns"
	"github.com/pawl-go/pawl/internal/contract"
	"github.com/pawl-go/pawl/internal/rollup"
	"github.com/pawl-go/pawl/internal/txn"
)

// A refusedError is the error of a late attempt that lost has already reported.
type refusedError struct{ error }

func (r refusedError) Unwrap() error { return r.error }

// tell emits an event and counts it in pawl.rollup.
func (s *Sweeper) tell(ctx context.Context, e pawl.Event) {
	e.Scope = s.scope()
	s.counted.Count(e)
	e.Scope = s.rows.table.Name
	s.cfg.Hooks.Emit(context.WithoutCancel(ctx), e)
}

// scope is the table's scope in pawl.rollup, whose source is that of consumers.
func (s *Sweeper) scope() string { return fmt.Sprintf("guard/%.200s", s.rows.table.Name) }

// tellFound emits events for taken and used-up rows of a pass, and stores the count of final rows.
func (s *Sweeper) tellFound(ctx context.Context, found passResult) {
	if found.taken > 0 {
		s.tell(ctx, pawl.Event{Kind: pawl.EventStaleTakeover, Op: "guard.sweep", Count: found.taken})
	}
	for _, row := range found.usedUp {
		s.tell(ctx, pawl.Event{Kind: pawl.EventFailed, Op: "guard.sweep", Key: row.ID, Attempt: row.Attempts, Err: errors.New(row.Error)})
	}
	if !found.counted {
		return
	}
	var level contract.Rollup
	level.Add(s.scope(), "final_rows", found.final)
	if _, err := contract.RollupAdd(ctx, s.rows.pool, rollup.Consumer, level, true); err != nil && ctx.Err() == nil {
		s.tell(ctx, pawl.Event{Kind: pawl.EventError, Op: "rollup.add", Err: err})
	}
}

// addCounts writes the counts to pawl.rollup.
func (s *Sweeper) addCounts(ctx context.Context) {
	if err := s.counted.Add(ctx, nil); err != nil && ctx.Err() == nil {
		s.tell(ctx, pawl.Event{Kind: pawl.EventError, Op: "rollup.add", Err: err})
	}
}

// failedKind returns the event kind for a recorded failure.
func failedKind(failure error) pawl.EventKind {
	if pawl.IsFinal(errors.Unwrap(failure)) {
		return pawl.EventFailed
	}
	return pawl.EventRetryable
}

// lost returns the error of an attempt that found its row not claimed by it. If an earlier Commit
// or Fail of it has ended the row, and the reply was lost, that is ErrAlreadyHandled. Else the
// attempt is late.
func (c *Claimed) lost(ctx context.Context, op string) error {
	if ended, err := c.ended(ctx); ended || err != nil {
		return err
	}
	c.doubt.Store(false)
	return c.late(ctx, op)
}

// late returns the error of a late attempt. The first time it emits an event, unless the attempt
// may have ended the row itself.
func (c *Claimed) late(ctx context.Context, op string) error {
	late := fmt.Errorf("row %s of %s no longer belongs to this claim: a Sweeper has taken it back", c.key, c.rows.table.Name)
	if c.rows.swept.running.Load() > 0 {
		late = swept{late}
	}
	err := &pawl.Error{Op: op, Code: pawl.CodeFenceLost, Err: refusedError{late}, Hint: "raise StuckAfter of the SweeperConfig above the longest work"}
	if s := c.rows.swept.newest.Load(); s != nil && !c.doubt.Load() && !c.over.Swap(true) {
		s.tell(ctx, pawl.Event{Kind: pawl.EventStaleWriteRefused, Op: op, Key: c.key, Err: err})
	}
	return err
}

// ended reports whether a Commit or Fail without a reply has ended the row. Its error is then
// ErrAlreadyHandled, once that end is replicated.
func (c *Claimed) ended(ctx context.Context) (bool, error) {
	if c.over.Load() || !c.doubt.Load() {
		return false, nil
	}
	var readOn string
	err := c.rows.pool.QueryRow(ctx, c.rows.sql.ended, c.id, c.token).Scan(&readOn)
	conns.LeaveStandby(c.rows.pool, err)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return false, nil
	case err != nil:
		return false, pawl.Wrap("guard.claim", err)
	}
	if err := txn.Replicated(ctx, c.rows.pool, readOn); err != nil {
		return true, err
	}
	c.over.Store(true)
	return true, &pawl.Error{Op: "guard.claim", Code: pawl.CodeAlreadyHandled,
		Err: fmt.Errorf("row %s of %s was ended by this claim, and the reply was lost", c.key, c.rows.table.Name)}
}
