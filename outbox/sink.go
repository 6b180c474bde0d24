package outbox

import (
	"context"
	"fmt"
	"sync"

	"github.com/pawl-go/pawl"
)

// Func makes a sink of a function that publishes one message. The messages of a batch are published side by side, so
// [Config.Batch] bounds how many calls of one batch run at once. A panic is the error of its message.
func Func(publish func(ctx context.Context, m pawl.Message) error) pawl.Sink {
	return funcSink(publish)
}

type funcSink func(ctx context.Context, m pawl.Message) error

func (f funcSink) Publish(ctx context.Context, ms []pawl.Message) []error {
	errs := make([]error, len(ms))
	var all sync.WaitGroup
	for i, m := range ms {
		all.Go(func() {
			defer func() {
				if cause := recover(); cause != nil {
					errs[i] = fmt.Errorf("panic: %v", cause)
				}
			}()
			errs[i] = f(ctx, m)
		})
	}
	all.Wait()
	return errs
}

// Channel makes a sink of a channel. A message counts as published when it was received, or is in the channel's buffer: what is
// lost there after that, in a crash, is not sent again. While nobody receives, the sink is down.
func Channel(to chan<- pawl.Message) pawl.Sink { return channelSink(to) }

type channelSink chan<- pawl.Message

func (c channelSink) Publish(ctx context.Context, ms []pawl.Message) []error {
	errs := make([]error, len(ms))
	for i, m := range ms {
		select {
		case c <- m:
		case <-ctx.Done():
			errs[i] = pawl.SinkDown(ctx.Err())
		}
	}
	return errs
}
