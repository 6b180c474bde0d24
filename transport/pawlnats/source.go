package pawlnats

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/transport/internal/adapter"
	"github.com/pawl-go/pawl/transport/internal/heart"
)

// A Source receives from one durable pull consumer. It is safe for concurrent use. It runs one
// goroutine while it holds deliveries. It never closes the connection.
type Source struct {
	conn     *nats.Conn
	js       jetstream.JetStream
	stream   string
	consumer string
	pulls    string // subject of pull requests
	config   Config
	binder   binder
	horizon  adapter.Horizon
	held     sync.Map // the latest delivery of each held message, an *arrival by its sequence
	pace     adapter.Pacer
	report   adapter.Reporter
	counters counters
	finished atomic.Bool

	unansweredInRow atomic.Int64 // consecutive pull requests without an answer
}

var (
	_ pawl.Finisher = (*Source)(nil)
	_ pawl.Broker   = (*Source)(nil)
)

// Open finds a durable pull consumer of a stream and checks its configuration. It creates nothing:
// a recreated consumer would deliver everything again. If the stream or consumer is missing or does
// not fit, the error has a one-line hint. The consumer needs:
//
//   - acks explicit, because each message is acknowledged once its outcome is committed
//   - max-deliver -1, because a message that reaches a limit stays in the stream and is never
//     delivered again; package consumer counts attempts and has dead letters
//   - no back-off, because it overrides AckWait
//   - AckWait of at least 1 s, extended at each third; the messages of a crashed process are
//     redelivered only after AckWait
//   - deliver all, unless [Config.StartsLater] is set; replay instant; with bodies; durable,
//     without an inactive threshold and without priority groups
//   - MaxAckPending 1 if [Config.OrderingKey] is set
//
// The connection of js must reconnect forever: connect with nats.MaxReconnects(-1).
func Open(ctx context.Context, js jetstream.JetStream, stream, consumer string, cfg Config) (*Source, error) {
	const op = "nats.open"
	cfg, err := cfg.filled()
	switch {
	case err != nil:
		return nil, err
	case js == nil:
		return nil, adapter.BadArgument(op, "the JetStream context is missing")
	case stream == "" || consumer == "":
		return nil, adapter.BadArgument(op, "the stream is %q and the consumer %q: both need a name", stream, consumer)
	}
	if err := patientConn(op, js.Conn()); err != nil {
		return nil, err
	}
	s := &Source{conn: js.Conn(), js: js, stream: stream, consumer: consumer, config: cfg,
		pulls: apiPrefix(js) + "CONSUMER.MSG.NEXT." + stream + "." + consumer, binder: binder{asking: make(chan struct{}, 1)}}
	s.report = adapter.Reporter{Hooks: cfg.Hooks, Scope: s.name()}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	s.horizon.Timeout, s.horizon.Ask = callTimeout, s.askHorizon
	if err := s.horizon.Learn(ctx); err != nil {
		return nil, wrap(op, s.name(), err)
	}
	for _, warning := range s.binder.now.Load().warnings {
		s.report.Emit(ctx, pawl.Event{Kind: pawl.EventError, Op: op, Err: errors.New(warning)})
	}
	return s, nil
}

func apiPrefix(js jetstream.JetStream) string {
	switch o := js.Options(); {
	case o.Domain != "":
		return "$JS." + o.Domain + ".API."
	case o.APIPrefix != "":
		return strings.TrimSuffix(o.APIPrefix, ".") + "."
	}
	return jetstream.DefaultAPIPrefix
}

func (s *Source) name() string { return s.stream + "/" + s.consumer }

// Broker returns "nats" and the stream's name, for traces.
func (s *Source) Broker() (system, destination string) { return "nats", s.stream }

// Info returns the redelivery horizon and the batch sizes. The horizon is the stream's MaxAge, or
// [pawl.Forever] without one, because a recreated consumer delivers all that the stream holds. If
// the consumer has a MaxAckPending, released messages count against it, so ReleaseBlocks is set.
//
// Open asks JetStream for these settings. Info asks again and checks the consumer again if the
// answer is older than five minutes, because settings may change. That takes at most ten seconds.
// If it fails, Info returns the last answer and asks again after a minute.
func (s *Source) Info() pawl.SourceInfo {
	_ = s.horizon.Get() // binds again if the answer is old
	b := s.binder.now.Load()
	i := pawl.SourceInfo{RedeliveryHorizon: b.horizon, ReceiveBatch: min(s.config.Batch, b.batch), AckBatch: ackBatch, ReleaseBlocks: b.bounded}
	if s.config.OrderingKey != nil {
		// The next message comes after this one's ack, so do not wait to batch.
		i.ReceiveBatch, i.AckBatch = 1, 1
	}
	return i
}

// Finish ends the source: it flushes pending acknowledgements to the server and stops extending
// held deliveries. Call it last, as a consumer does: later calls to Ack and Release do nothing and
// return an error. The connection stays open.
func (s *Source) Finish(ctx context.Context) error {
	s.finished.Store(true)
	s.letGoAll()
	if err := s.flush(ctx); err != nil {
		return wrap("nats.finish", s.name(), fmt.Errorf("acknowledgements may be lost, and their messages come again: %w", err))
	}
	return nil
}

var errFinished = errors.New("the source is finished")

// flush returns once the server has read everything sent before.
func (s *Source) flush(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return s.conn.FlushWithContext(ctx)
}

// A Backlog is how much waits for a consumer. Scale by it.
type Backlog struct {
	Pending     uint64 // not delivered yet
	AckPending  int    // delivered, not acknowledged
	Redelivered int    // those of AckPending delivered more than once
}

// Backlog asks JetStream how much waits.
func (s *Source) Backlog(ctx context.Context) (Backlog, error) {
	c, err := s.js.Consumer(ctx, s.stream, s.consumer)
	if err != nil {
		return Backlog{}, wrap("nats.backlog", s.name(), err)
	}
	i := c.CachedInfo()
	return Backlog{Pending: i.NumPending, AckPending: i.NumAckPending, Redelivered: i.NumRedelivered}, nil
}

// newHeart extends deliveries until they are let go. JetStream does not confirm extensions, so a
// lost delivery is noticed only when it is delivered again.
func (s *Source) newHeart(ackWait time.Duration) *heart.Heart[string] {
	return heart.New(heart.Config[string]{Lease: ackWait, Batch: heldBatch, CallTimeout: callTimeout,
		Extended: func(n int) { s.counters.extended.Add(int64(n)) },
		Extend: func(_ context.Context, beats []heart.Beat[string]) []heart.Extension {
			outcomes := make([]heart.Extension, len(beats))
			// Extensions buffered until a reconnect would arrive too late, and all at once.
			connected := s.conn.IsConnected()
			for i, b := range beats {
				outcomes[i].Failed = !connected || s.conn.Publish(b.Key, ackProgress) != nil
			}
			return outcomes
		}})
}
