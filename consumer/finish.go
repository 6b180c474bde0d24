package consumer

import (
	"context"
	"errors"
	"sync"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/callback"
)

// A sourceGuard prevents a release after finish. Release holds it for reading, finish for writing.
type sourceGuard struct {
	sync.RWMutex
	done bool
}

// finish ends a [pawl.Finisher]. All acknowledgements are done, and an abandoned handler cannot
// release while it runs or afterwards.
//
// finish: a crash before it costs redeliveries, after the broker notices that the process is gone.
func (c *Consumer) finish(ctx context.Context) {
	f, can := c.cfg.Source.(pawl.Finisher)
	if !can {
		return
	}
	c.source.Lock()
	defer c.source.Unlock()
	if c.source.done {
		return
	}
	c.source.done = true
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sourcePatience)
	defer cancel()
	if err := callback.Do("Source.Finish", func() error { return f.Finish(ctx) }); err != nil {
		c.emit(ctx, pawl.Event{Kind: pawl.EventError, Op: "consumer.finish", Err: err})
	}
}

func (c *Consumer) unfinished() error {
	c.source.RLock()
	defer c.source.RUnlock()
	if !c.source.done {
		return nil
	}
	return &pawl.Error{Op: "consumer.run", Code: pawl.CodeArgumentInvalid, Err: errors.New("the source is finished: Run was called before"),
		Hint: "open the source again and make another consumer"}
}
