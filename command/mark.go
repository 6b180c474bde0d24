package command

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/contract"
	"github.com/pawl-go/pawl/internal/pace"
)

const (
	// markFor bounds the recording of a failure, which continues after the caller has left.
	markFor = 10 * time.Second
	// markTries bounds how often a failure is sent. Recording it twice is no error.
	markTries = 5
	// recordFor bounds the recording of a stale write, which waits for a connection: the caller's
	// transaction may hold the only one. If it fails, only the events have it.
	recordFor = 30 * time.Second
)

// mark records a failure in its own transaction, when the claiming one is gone. If another call has
// claimed since, it returns askAgainError, and run reads that call's answer.
func (c *call[X]) mark(ctx context.Context, cause error) error {
	detached, cancel := context.WithTimeout(context.WithoutCancel(ctx), markFor)
	defer cancel()
	var err error
	for range markTries {
		var row contract.CommandFailRow
		row, err = contract.CommandFail(detached, c.db, c.failArgs(cause))
		switch {
		case err == nil:
			if err := c.replicated(ctx, row.ReadOn); err != nil {
				return pawl.Wrap("command.fail", errors.Join(err, cause))
			}
			return c.told(ctx, row, cause)
		case errors.Is(err, pawl.ErrFenceLost):
			c.refusedAsStale(ctx, "command.fail", err)
			return &askAgainError{err}
		case !pawl.Retryable(err):
			return pawl.Wrap("command.fail", errors.Join(cause, err))
		}
		pace.Sleep(detached, rand.N(200*time.Millisecond))
	}
	// Not recorded. Nothing of the attempt is durable, so the next claim is a new one.
	return pawl.Wrap("command.fail", errors.Join(cause, err))
}

func (c *call[X]) failArgs(cause error) contract.CommandFailArgs {
	final, unknown := endOf(cause)
	return contract.CommandFailArgs{Intent: c.intent, Fence: c.row.Fence, Failure: contract.FailureOf(cause),
		Final: final, Unknown: unknown, Retention: c.opts.Retention}
}

// told emits the event of a recorded failure and returns the caller's error.
func (c *call[X]) told(ctx context.Context, row contract.CommandFailRow, cause error) error {
	kind := pawl.EventRetryable
	switch row.Status {
	case "failed_final":
		kind = pawl.EventFailed
	case "unknown":
		kind = pawl.EventUnknown
	}
	c.emit(ctx, pawl.Event{Kind: kind, Op: "command.fail", Attempt: row.Attempts, Err: cause})
	return failed("command.handle", row.Status, row.Attempts, cause)
}

// refusedAsStale reports that the attempt came too late. It records it in the key's history in the
// background, because the caller may be in a transaction on the same pool. Later refusals of the
// same attempt are not reported again.
func (c *call[X]) refusedAsStale(ctx context.Context, op string, refusal error) {
	if c.stale.Swap(c.row.Fence) == c.row.Fence {
		return
	}
	c.emit(ctx, pawl.Event{Kind: pawl.EventStaleWriteRefused, Op: op, Fence: c.row.Fence, Err: refusal})
	refused := contract.StaleWrite{Scope: c.intent.Scope, Key: c.intent.Key, Fence: c.row.Fence, Worker: process()}
	go record(context.WithoutCancel(ctx), c.db, c.opts.Hooks, refused)
}

// record stores a refusal. If the database refuses that, record emits an event. It emits none if
// the database is out of reach or the pool was closed, which may be after the caller has left.
func record(ctx context.Context, db pawl.DB, hooks pawl.Hooks, refused contract.StaleWrite) {
	limited, cancel := context.WithTimeout(ctx, recordFor)
	defer cancel()
	if err := contract.StaleWriteAdd(limited, db, "command", refused); pawl.CodeOf(err) != "" {
		hooks.Emit(ctx, pawl.Event{Kind: pawl.EventError, Op: "stale_write.add", Scope: refused.Scope, Key: refused.Key, Fence: refused.Fence, Err: err})
	}
}
