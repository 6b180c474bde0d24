package consumer

import (
	"context"
	"fmt"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/callback"
	"github.com/pawl-go/pawl/internal/delivery"
	"github.com/pawl-go/pawl/internal/pace"
)

const (
	longestQueue  = 28 * 24 * time.Hour // 14 days in an SQS queue, 14 in its dead letter queue
	purgeEvery    = time.Minute
	purgePatience = 5 * time.Second // for one batch
	manyRows      = 1_000_000       // with more rows, remembering everything causes a warning
)

// keepInbox deletes rows older than the window until ctx ends. Rows stay a tenth longer, and at
// least an hour: a delivery's age is the sender's, whose clock may be ahead of the database's.
func (c *Consumer) keepInbox(ctx context.Context) {
	window := c.cfg.Retention.Window()
	if window == 0 && c.handler.form != triggered {
		c.warnOfGrowth(ctx)
	}
	for ctx.Err() == nil {
		if holds := c.promise(ctx, window); holds > 0 {
			c.purge(ctx, "inbox.purge", delivery.Purge, holds+beyond(holds))
		}
		if c.cfg.Keep.Mode != KeepOff {
			c.purge(ctx, "delivery.purge", delivery.PurgeKept, c.cfg.Keep.Retention)
		}
		pace.Sleep(ctx, pace.Jittered(purgeEvery))
	}
}

// promise reports this consumer's retention to the database. It returns the longest retention of
// all programs with its name. 0 is forever, or unknown after an error.
func (c *Consumer) promise(ctx context.Context, window time.Duration) time.Duration {
	info, err := callback.Get("Source.Info", c.cfg.Source.Info) // may ask the broker
	if err != nil {
		c.emit(ctx, pawl.Event{Kind: pawl.EventError, Op: "inbox.report", Err: err})
		return 0
	}
	horizon := info.RedeliveryHorizon // may have grown since the start
	switch {
	case c.follows && horizon > longestHorizon:
		window = 0
	case c.follows:
		window = max(window, horizon)
	}
	limited, cancel := context.WithTimeout(ctx, purgePatience)
	defer cancel()
	asked := time.Now()
	p, err := delivery.Report(limited, c.pool, c.cfg.Name, window, min(horizon, longestHorizon))
	if err != nil {
		if ctx.Err() == nil {
			c.emit(ctx, pawl.Event{Kind: pawl.EventError, Op: "inbox.report", Err: err})
		}
		return 0
	}
	c.memory.Store(&memory{at: asked, until: p.ForgottenUntil})
	return p.Holds
}

type purgeFunc = func(ctx context.Context, db pawl.DB, b delivery.PurgeBatch) (delivery.Purged, error)

// purge deletes in batches that take up to 20 ms, and rests after each for four times as long.
func (c *Consumer) purge(ctx context.Context, op string, some purgeFunc, olderThan time.Duration) {
	var size pace.Pace
	for next := ""; ctx.Err() == nil; {
		start, batch := time.Now(), size.Rows()
		limited, cancel := context.WithTimeout(ctx, purgePatience)
		purged, err := some(limited, c.pool, delivery.PurgeBatch{Consumer: c.cfg.Name, OlderThan: olderThan, Limit: batch, Since: next})
		cancel()
		size.Took(time.Since(start))
		if err != nil && ctx.Err() == nil {
			c.emit(ctx, pawl.Event{Kind: pawl.EventError, Op: op, Err: err})
		}
		if err != nil || purged.Rows < batch {
			return
		}
		next = purged.Next
		pace.Sleep(ctx, 4*time.Since(start))
	}
}

func (c *Consumer) warnOfGrowth(ctx context.Context) {
	if rows, err := delivery.Estimate(ctx, c.pool); err == nil && rows > manyRows {
		c.emit(ctx, pawl.Event{Kind: pawl.EventError, Op: "inbox.purge",
			Err: fmt.Errorf("about %d deliveries are remembered, and Retention.Forever forgets none", rows)})
	}
}
