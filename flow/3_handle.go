package flow

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/guard"
	"github.com/pawl-go/pawl/internal/fault"
	"github.com/pawl-go/pawl/internal/txn"
)

// handle runs the user's code behind a savepoint. An error leaves the claim standing and nothing of the handler's;
// so does a gate that does not let it pass, and a semantic key that took effect before.
//
// handle: a crash in it costs a redelivery; the handler's rows were never visible.
func (f *Flow) handle(ctx context.Context, tx *txn.Opened, it item, leave func()) (p passage, took time.Duration, err error) {
	start := time.Now()
	err = f.guarded(ctx, tx, leave, func(ctx context.Context, tx pgx.Tx) (err error) {
		p, err = f.gated(ctx, tx, it)
		return err
	})
	return p, time.Since(start), err
}

func (f *Flow) guarded(ctx context.Context, tx *txn.Opened, leave func(), fn func(context.Context, pgx.Tx) error) error {
	defer f.watch(ctx, leave).Stop()
	return tx.Guard(ctx, f.cfg.Timeout, func(ctx context.Context, tx pgx.Tx) error {
		if err := fault.At("flow.handle.before"); err != nil {
			return err
		}
		if err := fn(ctx, tx); err != nil {
			return err
		}
		return fault.At("flow.handle.after")
	})
}

// exclusiveNamespace is that of the locks of [Config.Exclusive], shared by all consumers.
const exclusiveNamespace = "flow"

// exclude takes the lock of a resource until the transaction ends.
func exclude(ctx context.Context, tx pgx.Tx, resource string) error {
	if resource == "" {
		return nil
	}
	locked, err := guard.TryLock(ctx, tx, exclusiveNamespace, resource)
	if err == nil && !locked {
		err = &pawl.Error{Op: "flow.exclude", Code: lockNotHad, Err: fmt.Errorf("another handler works on %s", resource)}
	}
	return err
}

// lockNotHad is lock_not_available: somebody else has it now.
const lockNotHad pawl.Code = "55P03"
