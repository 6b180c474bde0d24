package outbox

import (
	"context"
	"errors"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/callback"
)

// Func makes a sink of a function that publishes one message. The messages of one Publish are
// published concurrently, so [Config.MaxPublish] bounds how many calls of the function run at once.
// A panic becomes the error of its message. A call that has not returned half a second after ctx
// ends is abandoned: its message counts as not published. The other messages keep their results.
func Func(publish func(ctx context.Context, m pawl.Message) error) pawl.Sink {
	return funcSink(publish)
}

type funcSink func(ctx context.Context, m pawl.Message) error

// funcGrace is how long a function may take to return after its context ends. It must be less than
// sinkGrace, so that Publish returns before the relay abandons it.
const funcGrace = 500 * time.Millisecond

func (f funcSink) Publish(ctx context.Context, ms []pawl.Message) []error {
	type answer struct {
		place int
		err   error
	}
	answers, errs := make(chan answer, len(ms)), make([]error, len(ms))
	for i, m := range ms {
		errs[i] = errLeftBehind
		go func() { answers <- answer{i, callback.Do("", func() error { return f(ctx, m) })} }()
	}
	over, stop := lateAfter(ctx, funcGrace)
	defer stop()
	for range ms {
		select {
		case a := <-answers:
			errs[a.place] = a.err
		case <-over:
			return errs
		}
	}
	return errs
}

// errLeftBehind is the error of an abandoned call, which may have published. It marks the sink as
// down, because a sink that does not answer is not charged to the event at first.
var errLeftBehind = pawl.SinkDown(errors.New("the call was abandoned: it did not return after its context ended"))

// lateAfter returns a channel that closes grace after ctx ends. Call stop when done with it.
func lateAfter(ctx context.Context, grace time.Duration) (over <-chan struct{}, stop func() bool) {
	late := make(chan struct{})
	return late, context.AfterFunc(ctx, func() { time.AfterFunc(grace, func() { close(late) }) })
}

// Channel makes a sink of a channel. A message counts as published once it was received or is in
// the channel's buffer. If the process crashes, messages in the buffer are lost and not sent again.
// While the channel is full and has no receiver, the sink is down.
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
