package consumer

import (
	"context"
	"slices"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/callback"
	"github.com/pawl-go/pawl/internal/delivery"
)

// filterPatience bounds one call of a filter, and the read of the epoch.
const filterPatience = time.Second

// filter acknowledges the deliveries that a mark proves to be duplicates, and returns the others.
// If the filter or the database fails, that is all of them, and the claim meets the failure.
//
// filter: a crash after it costs a redelivery, which is a duplicate again.
func (c *Consumer) filter(ctx context.Context, batch []pawl.Delivery) (others []pawl.Delivery) {
	if c.cfg.Filter == nil || len(batch) == 0 {
		return batch
	}
	ctx = context.WithoutCancel(ctx) // while it stops, too, a duplicate is better acknowledged
	items, keys := make([]item, len(batch)), make([]string, len(batch))
	for n, d := range batch {
		items[n], _ = c.identify(d) // deliver handles an invalid one
		keys[n] = markKey(items[n].intent)
	}
	marks := c.loadMarks(ctx, keys)
	if !slices.ContainsFunc(marks, func(mark []byte) bool { return mark != nil }) {
		return batch
	}
	limited, cancel := context.WithTimeout(ctx, filterPatience)
	defer cancel()
	// not earlier: see [delivery.Epoch.Proves]
	epoch, err := delivery.ReadEpoch(limited, c.pool, c.cfg.Name)
	if err != nil {
		return batch
	}
	for n, d := range batch {
		switch {
		case !hasMark(items[n]) || !epoch.Proves(marks[n], items[n].intent):
			others = append(others, d)
		case !c.held(ctx, d):
			c.drop(ctx, d)
		default:
			c.emitOf(ctx, items[n].Delivery, pawl.Event{Kind: pawl.EventDuplicateFiltered, Op: "consumer.filter"})
			c.acknowledge(d, deliveryResult{decided: true, readOn: epoch.ReadOn}, nil)
		}
	}
	return others
}

// loadMarks returns the mark of each key, or nil after an error.
func (c *Consumer) loadMarks(ctx context.Context, keys []string) (marks [][]byte) {
	ctx, cancel := context.WithTimeout(ctx, filterPatience)
	defer cancel()
	err := callback.Do("Filter.Load", func() (err error) {
		marks, err = c.cfg.Filter.Load(ctx, keys)
		return err
	})
	if err != nil {
		c.emit(ctx, pawl.Event{Kind: pawl.EventError, Op: "consumer.filter", Err: err})
		return nil
	}
	if len(marks) != len(keys) {
		return nil
	}
	return marks
}
