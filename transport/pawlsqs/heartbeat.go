package pawlsqs

import (
	"context"
	"slices"
	"time"

	"github.com/pawl-go/pawl/internal/callback"
	"github.com/pawl-go/pawl/transport/internal/heart"
)

// newHeart returns the heartbeat that keeps messages invisible, by receipt handle, from their
// receive until letGo. After twelve hours SQS extends no further.
func newHeart(visibility time.Duration, set batchCall[change], c *counters, lost func(n int)) *heart.Heart[string] {
	return heart.New(heart.Config[string]{
		Lease: visibility, Batch: maxBatch, CallTimeout: callTimeout, Lost: lost,
		Extended: func(n int) { c.extended.Add(int64(n)) },
		Extend: func(ctx context.Context, beats []heart.Beat[string]) []heart.Extension {
			changes := make([]change, len(beats))
			for i, b := range beats {
				changes[i] = change{receipt: b.Key, seconds: int32(min(time.Duration(wholeSeconds(visibility)), b.Left/time.Second))}
			}
			outcomes := make([]heart.Extension, len(beats))
			changed, fault := callback.Get("API", func() []entryResult { return inBatches(ctx, changes, set) })
			if fault != nil { // retried, like an error of the service
				changed = slices.Repeat([]entryResult{{err: fault}}, len(beats))
			}
			for i, o := range changed {
				outcomes[i] = heart.Extension{Failed: o.err != nil, Lost: o.dead}
			}
			return outcomes
		},
	})
}

func (s *Source) hold(a *arrival) { s.heart.Hold(a.receipt, a.polled.Add(maxVisibility)) }

// letGo stops extending; see [heart.Heart.LetGo].
func (s *Source) letGo(as []*arrival) (stored <-chan struct{}) {
	receipts := make([]string, len(as))
	for i, a := range as {
		receipts[i] = a.receipt
	}
	return s.heart.LetGo(receipts)
}
