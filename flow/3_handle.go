package flow

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/fault"
	"github.com/pawl-go/pawl/internal/txn"
)

// handle runs the user's code behind a savepoint. An error leaves the claim standing and nothing of the handler's.
//
// handle: a crash in it costs a redelivery; the handler's rows were never visible.
func (f *Flow) handle(ctx context.Context, tx *txn.Opened, d pawl.Delivery) (took time.Duration, err error) {
	start := time.Now()
	err = tx.Guard(ctx, f.cfg.Timeout, func(ctx context.Context, tx pgx.Tx) error {
		if err := fault.At("flow.handle.before"); err != nil {
			return err
		}
		if err := f.cfg.Handler(ctx, tx, d); err != nil {
			return err
		}
		return fault.At("flow.handle.after")
	})
	return time.Since(start), err
}
