package consumer

import (
	"context"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/callback"
)

// maxMarks is how many marks may wait to be stored, and how many are stored in one call. Further
// ones are dropped.
const maxMarks = 1000

// A mark waits to be stored in the filter.
type mark struct {
	key   string
	value []byte
}

// keepMark passes a mark to storeMarks, or drops it if too many wait.
func (c *Consumer) keepMark(m *mark) {
	if m == nil {
		return
	}
	select {
	case c.marks <- *m:
	default:
	}
}

// storeMarks stores marks, those that wait together, until stopped and then once more.
func (c *Consumer) storeMarks(ctx context.Context, stopped <-chan struct{}) {
	for {
		select {
		case first := <-c.marks:
			c.store(ctx, first)
		case <-stopped:
			if len(c.marks) > 0 {
				c.store(ctx, <-c.marks)
			}
			return
		}
	}
}

func (c *Consumer) store(ctx context.Context, first mark) {
	keys, marks := []string{first.key}, [][]byte{first.value}
	for range min(len(c.marks), maxMarks-1) {
		next := <-c.marks
		keys, marks = append(keys, next.key), append(marks, next.value)
	}
	ctx, cancel := context.WithTimeout(ctx, filterPatience)
	defer cancel()
	if err := callback.Do("Filter.Store", func() error { return c.cfg.Filter.Store(ctx, keys, marks) }); err != nil {
		c.emit(ctx, pawl.Event{Kind: pawl.EventError, Op: "consumer.filter", Count: len(keys), Err: err})
	}
}
