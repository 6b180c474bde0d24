package guard

import (
	"context"
	"errors"
	"fmt"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/contract"
	"github.com/pawl-go/pawl/internal/rollup"
)

// A refusedError is that of an attempt that was late: a hook has been told.
type refusedError struct{ error }

func (r refusedError) Unwrap() error { return r.error }

// tell tells the hooks of an event, and counts it for the charts.
func (s *Sweeper) tell(ctx context.Context, e pawl.Event) {
	e.Scope = s.scope()
	s.counted.Count(e)
	e.Scope = s.rows.table.Name
	s.cfg.Hooks.Emit(context.WithoutCancel(ctx), e)
}

// scope is the table in pawl.rollup, where it stands among the consumers.
func (s *Sweeper) scope() string { return fmt.Sprintf("guard/%.200s", s.rows.table.Name) }

// tellFound tells what a pass has found and what is driven no more.
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

// addCounts adds to the database what was counted.
func (s *Sweeper) addCounts(ctx context.Context) {
	if err := s.counted.Add(ctx, nil); err != nil && ctx.Err() == nil {
		s.tell(ctx, pawl.Event{Kind: pawl.EventError, Op: "rollup.add", Err: err})
	}
}

// failedKind is the event of a failure that the row holds.
func failedKind(failure error) pawl.EventKind {
	if pawl.IsFinal(errors.Unwrap(failure)) {
		return pawl.EventFailed
	}
	return pawl.EventRetryable
}

// lost tells that an attempt was late, and is the error that says so.
func (c *Claimed) lost(ctx context.Context, op string) error {
	late := fmt.Errorf("row %v of %s is not under this claim any more: a Sweeper has taken it back", c.id, c.rows.table.Name)
	if c.rows.swept.running.Load() > 0 {
		late = swept{late}
	}
	err := &pawl.Error{Op: op, Code: pawl.CodeFenceLost, Err: refusedError{late}, Hint: "raise StuckAfter of the SweeperConfig above the longest work"}
	if s := c.rows.swept.newest.Load(); s != nil {
		s.tell(ctx, pawl.Event{Kind: pawl.EventStaleWriteRefused, Op: op, Key: fmt.Sprint(c.id), Err: err})
	}
	return err
}
