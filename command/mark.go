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
	// markFor bounds the recording of a failure, which goes on when the caller has left.
	markFor = 10 * time.Second
	// markTries bounds how often it is sent. Telling it twice is no error.
	markTries = 5
	// recordFor bounds the recording of a refusal. If that fails, the log alone has it.
	recordFor = 2 * time.Second
)

// mark records a failure in a transaction of its own, when the one that claimed is gone. Somebody may have claimed in between;
// then the row has their answer, or soon will.
func (c *call[X]) mark(ctx context.Context, cause error) error {
	detached, cancel := context.WithTimeout(context.WithoutCancel(ctx), markFor)
	defer cancel()
	var err error
	for range markTries {
		var row contract.CommandFailRow
		row, err = contract.CommandFail(detached, c.db, c.failArgs(cause))
		switch {
		case err == nil:
			if err := c.proof(ctx, row.ReadOn); err != nil {
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

// told reports what the row holds after a failure, and makes the caller's error of it.
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

// refusedAsStale tells that the attempt came too late, and records it for the key's story.
func (c *call[X]) refusedAsStale(ctx context.Context, op string, refusal error) {
	c.emit(ctx, pawl.Event{Kind: pawl.EventStaleWriteRefused, Op: op, Fence: c.row.Fence, Err: refusal})
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordFor)
	defer cancel()
	err := contract.StaleWriteAdd(ctx, c.db, "command", contract.StaleWrite{Scope: c.intent.Scope, Key: c.intent.Key, Fence: c.row.Fence, Worker: process()})
	if err != nil {
		c.emit(ctx, pawl.Event{Kind: pawl.EventError, Op: "stale_write.add", Err: err})
	}
}
