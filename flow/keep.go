package flow

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/internal/pace"
)

const (
	longestQueue  = 28 * 24 * time.Hour // an SQS queue keeps a message for 14 days at most, its dead letter queue as long again
	purgeEvery    = time.Minute
	purgePatience = 5 * time.Second // for one batch
	manyRows      = 1_000_000       // from here on remembering everything is worth a warning
)

// horizon is how long after it was sent the source may deliver a message; 0: it does not know.
func (c *Config) horizon() time.Duration {
	if source, says := c.Source.(pawl.RedeliveryHorizon); says {
		return source.RedeliveryHorizon()
	}
	return 0
}

// completeRetention compares what is to be remembered with what may come again.
func (c *Config) completeRetention() error {
	horizon, window := c.horizon(), c.Retention.Window()
	switch {
	case c.Retention.Forever:
		return nil
	case window == 0 && horizon == 0:
		c.Retention.QueueRedelivery = longestQueue
	case window == 0:
		c.Retention.QueueRedelivery, c.followsSource = horizon, true
	case window < 0 || window < horizon:
		return fmt.Errorf("the Retention is %v, but the source may deliver a message again for %v: what comes after %v would run twice",
			window, horizon, window)
	}
	return nil
}

// completeKeep asks the source, where the configuration does not say what to keep.
func (c *Config) completeKeep() {
	source, is := c.Source.(pawl.Evidence)
	if c.Keep == KeepDefault {
		c.Keep = KeepFailed
		if is {
			c.Keep = KeepAll
		}
	}
	if is && c.KeepAttributes == nil {
		c.KeepAttributes = source.Evidence()
	}
}

// stale says whether a delivery is so old that an earlier arrival of it may have been forgotten, by its own word and the clock of
// the database. It is never run as new. One that does not say its age is believed to be new.
func (f *Flow) stale(claim inbox.Claim, d pawl.Delivery) error {
	window := f.cfg.Retention.Window()
	born := d.ProducedAt
	if born.IsZero() || !d.SentAt.IsZero() && d.SentAt.Before(born) {
		born = d.SentAt
	}
	if window == 0 || born.IsZero() || !claim.Fresh || claim.ReceivedAt.Sub(born) <= window {
		return nil
	}
	return &pawl.Error{Op: "flow.claim", Code: pawl.CodeDeliveryStale,
		Err: fmt.Errorf("it is of %s, and deliveries are remembered for %v", born.UTC().Format(time.RFC3339), window)}
}

// landStale makes a dead letter of a stale delivery.
func (f *Flow) landStale(ctx context.Context, tx pgx.Tx, claim inbox.Claim, it item) (pawl.Receipt, error) {
	why := f.stale(claim, it.Delivery)
	return f.landIn(ctx, tx, claim, it, f.staleLanding(why), pawl.EventStale, why)
}

func (f *Flow) staleLanding(why error) inbox.Landing {
	l := f.untried()
	l.Dead, l.Outside, l.Failure = true, true, why
	return l
}

// keepInbox forgets what is older than the window, until ctx ends. Rows stay a tenth longer, and an hour at least: whoever sends
// may have a clock that is ahead of the database's, and is refused as stale by its own.
func (f *Flow) keepInbox(ctx context.Context) {
	window := f.cfg.Retention.Window()
	if window == 0 {
		f.warnOfGrowth(ctx)
	}
	for ctx.Err() == nil {
		if holds := f.promise(ctx, window); holds > 0 {
			f.purge(ctx, "inbox.purge", inbox.Purge, holds+max(holds/10, time.Hour))
		}
		if f.cfg.Keep != KeepOff {
			f.purge(ctx, "delivery.purge", inbox.PurgeKept, f.cfg.KeepFor)
		}
		pause(ctx, jittered(purgeEvery))
	}
}

// promise says for how long this consumer remembers, and returns for how long all programs of its name do: 0 is for ever, or not known
// now.
func (f *Flow) promise(ctx context.Context, window time.Duration) time.Duration {
	horizon := f.cfg.horizon() // may ask the broker; it may have grown since the start
	if f.cfg.followsSource {
		window = max(window, horizon)
	}
	limited, cancel := context.WithTimeout(ctx, purgePatience)
	defer cancel()
	holds, err := inbox.Report(limited, f.pool, f.cfg.Consumer, window, horizon)
	if err != nil && ctx.Err() == nil {
		f.emit(ctx, pawl.Event{Kind: pawl.EventTrouble, Op: "inbox.report", Err: err})
	}
	return holds
}

type purge = func(ctx context.Context, db pawl.DB, b inbox.PurgeBatch) (inbox.Purged, error)

// purge forgets in batches as large as 20 ms allow, and rests after each for four times as long as it took.
func (f *Flow) purge(ctx context.Context, op string, some purge, olderThan time.Duration) {
	var pace pace.Pace
	for next := ""; ctx.Err() == nil; {
		start, batch := time.Now(), pace.Rows()
		limited, cancel := context.WithTimeout(ctx, purgePatience)
		purged, err := some(limited, f.pool, inbox.PurgeBatch{Consumer: f.cfg.Consumer, OlderThan: olderThan, Limit: batch, Since: next})
		cancel()
		pace.Took(time.Since(start))
		if err != nil && ctx.Err() == nil {
			f.emit(ctx, pawl.Event{Kind: pawl.EventTrouble, Op: op, Err: err})
		}
		if err != nil || purged.Rows < batch {
			return
		}
		next = purged.Next
		pause(ctx, 4*time.Since(start))
	}
}

func (f *Flow) warnOfGrowth(ctx context.Context) {
	if rows, err := inbox.Estimate(ctx, f.pool); err == nil && rows > manyRows {
		f.emit(ctx, pawl.Event{Kind: pawl.EventTrouble, Op: "inbox.purge",
			Err: fmt.Errorf("about %d deliveries are remembered, and Retention.Forever forgets none", rows)})
	}
}

// queueKeep adds to a batch that a delivery is kept as it came, with the attributes that may be.
func (f *Flow) queueKeep(b *pgx.Batch, it item) {
	headers := map[string]any{}
	for _, name := range f.cfg.KeepAttributes {
		if value, there := it.Attributes[name]; there {
			headers[storable(name)] = storable(value)
		}
	}
	inbox.QueueKeep(b, it.intent, inbox.Record{Body: it.Body, Headers: headers, VerifiedBy: it.VerifiedBy, Landing: f.landingOf(it)})
}
