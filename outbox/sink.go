package outbox

import (
	"context"
	"errors"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/callback"
)

// Func makes a sink of a function that publishes one message. It publishes the messages of one call
// of Publish side by side, so [Config.MaxPublish] bounds how many calls of the function run at once. A panic is the error of its message. A call that has not returned half a
// second after ctx ends is left behind: its message counts as not published, and those of the other calls keep their answers.
func Func(publish func(ctx context.Context, m pawl.Message) error) pawl.Sink {
	return funcSink(publish)
}

type funcSink func(ctx context.Context, m pawl.Message) error

// funcGrace is how long after the end of its context a function may take to return. It is less than a relay waits for the sink.
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

// errLeftBehind is the end of a call of which nobody knows whether it published. A sink that does not answer is down, until it has
// accepted others since.
var errLeftBehind = pawl.SinkDown(errors.New("it did not return when its context had ended, and was left behind"))

// lateAfter returns a channel that is closed so long after the end of ctx. Call stop when it is not awaited any more.
func lateAfter(ctx context.Context, grace time.Duration) (over <-chan struct{}, stop func() bool) {
	late := make(chan struct{})
	return late, context.AfterFunc(ctx, func() { time.AfterFunc(grace, func() { close(late) }) })
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
