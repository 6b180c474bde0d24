package operator

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/conns"
	"github.com/pawl-go/pawl/ops"
)

var errMoved = errors.New("it has changed since you looked")

// asSeen runs a verb that has no check of its own, and rolls back if the thing has changed since
// the operator looked. The verb holds the thing's lock meanwhile, so the second of two concurrent
// calls sees the change of the first.
func asSeen(ctx context.Context, db pawl.DB, verb func(pawl.DB) (ops.Result, error), same func(pawl.DB, ops.Result) (bool, error)) (r ops.Result, err error) {
	conn, is := db.(interface { // a pool or a connection
		BeginTx(context.Context, pgx.TxOptions) (pgx.Tx, error)
	})
	if !is {
		return r, fmt.Errorf("%T cannot begin a transaction", db)
	}
	err = pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) (err error) {
		if r, err = verb(tx); err != nil || !r.Changed() {
			return err
		}
		is, err := same(tx, r)
		if err == nil && !is {
			err = errMoved
		}
		return err
	})
	conns.LeaveStandby(db, err)
	if errors.Is(err, errMoved) {
		return ops.Result{Outcome: ops.Moved, DryRun: r.DryRun, Was: r.Was, Hint: "it has changed since you looked, or this form was sent already: go back and look again"}, nil
	}
	return r, err
}

// runNow enqueues a job of a schedule, unless an operator has changed the schedule since it was
// read. So a form that is sent twice enqueues one job.
func runNow(ctx context.Context, db pawl.DB, p Values, by ops.By) (ops.Result, error) {
	ref := ops.ScheduleRef{Name: p("name")}
	seen := p.seen("record")
	if seen == nil {
		return ref.RunNow(ctx, db, by)
	}
	return asSeen(ctx, db, func(db pawl.DB) (ops.Result, error) { return ref.RunNow(ctx, db, by) }, func(db pawl.DB, r ops.Result) (bool, error) {
		records, err := ref.Changes(ctx, db)
		if n := len(records); n > 0 && !r.DryRun { // the last record is its own
			records = records[:n-1]
		}
		return lastRecord(records) == *seen, err
	})
}

// resetGate sets the number of a gate. If the gate had no number when it was read and has one now,
// nothing changes.
func resetGate(ctx context.Context, db pawl.DB, p Values, by ops.By) (ops.Result, error) {
	ref := ops.SequenceGateRef{Consumer: p("consumer"), Resource: p("resource")}
	if p("last") == "none" {
		return asSeen(ctx, db, func(db pawl.DB) (ops.Result, error) { return ref.Reset(ctx, db, p.number("to"), by) },
			func(_ pawl.DB, r ops.Result) (bool, error) { return r.Was == "", nil })
	}
	ref.Last = p.seen("last")
	return ref.Reset(ctx, db, p.number("to"), by)
}

// lastRecord returns the id of the newest audit record of a thing, or 0.
func lastRecord(all []ops.Change) int64 {
	if len(all) == 0 {
		return 0
	}
	return all[len(all)-1].ID
}
