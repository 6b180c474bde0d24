package pawlnats

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/transport/internal/adapter"
	"github.com/pawl-go/pawl/transport/internal/heart"
)

// A Source receives from one durable pull consumer. Its methods may be called from many goroutines. It has one goroutine of its own while it
// holds deliveries, and none otherwise. It never closes the connection.
type Source struct {
	conn     *nats.Conn
	js       jetstream.JetStream
	stream   string
	consumer string
	pulls    string // the subject of pull requests
	config   Config
	binder   binder
	held     handles
	pace     adapter.Pacer
	counters counters
	finished atomic.Bool

	unansweredInRow atomic.Int64 // pull requests
}

var (
	_ pawl.Finisher = (*Source)(nil)
	_ pawl.Broker   = (*Source)(nil)
)

// Open finds a durable pull consumer of a stream and checks what it was made with. It makes nothing: a consumer that is made anew delivers
// everything again. The error says in one line what to change if the stream or the consumer does not exist, or does not fit:
//
//   - acks explicit, as each message is acknowledged once its outcome is committed;
//   - max-deliver -1, as a message that reaches a limit stays in the stream, unseen for ever; package consumer counts attempts and has dead
//     letters;
//   - no back-off, which overrides AckWait;
//   - AckWait of 1 s at least: it is extended at each third of it, and is how long the messages of a crashed process are missing;
//   - deliver all, unless [Config.StartsLater] is set; replay instant; with the bodies; durable, without an inactive threshold, without
//     priority groups;
//   - MaxAckPending 1 if [Config.OrderingKey] is set.
//
// The connection of js must reconnect for ever: connect with nats.MaxReconnects(-1).
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
	s := &Source{conn: js.Conn(), js: js, stream: stream, consumer: consumer, config: cfg, held: handles{bySequence: map[uint64]*arrival{}},
		pulls: apiPrefix(js) + "CONSUMER.MSG.NEXT." + stream + "." + consumer, binder: binder{asking: make(chan struct{}, 1)}}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	b, err := s.bind(ctx)
	if err != nil {
		return nil, wrap(op, s.name(), err)
	}
	for _, warning := range b.warnings {
		s.emit(ctx, pawl.Event{Kind: pawl.EventError, Op: op, Err: errors.New(warning)})
	}
	return s, nil
}

// apiPrefix is where JetStream listens.
func apiPrefix(js jetstream.JetStream) string {
	switch o := js.Options(); {
	case o.Domain != "":
		return "$JS." + o.Domain + ".API."
	case o.APIPrefix != "":
		if o.APIPrefix[len(o.APIPrefix)-1] == '.' {
			return o.APIPrefix
		}
		return o.APIPrefix + "."
	}
	return jetstream.DefaultAPIPrefix
}

func (s *Source) name() string { return s.stream + "/" + s.consumer }

// Broker returns nats and the name of the stream, for traces.
func (s *Source) Broker() (system, destination string) { return "nats", s.stream }

// Info says for how long a message may come again without being published again: for the MaxAge of
// the stream, or for ever if it has none. A consumer that is made anew delivers all that the stream
// still holds. If the consumer has a MaxAckPending, what was given back counts against it, so
// ReleaseBlocks is set.
//
// Open asks JetStream for it, and Info asks again if the answer is older than five minutes, and
// checks the consumer as Open does: settings may change under a running consumer. That takes ten
// seconds at most; if it fails, the last answer holds, and the next call asks again after a minute.
func (s *Source) Info() pawl.SourceInfo {
	b := s.recent()
	i := pawl.SourceInfo{RedeliveryHorizon: b.horizon, ReceiveBatch: min(s.config.Batch, b.batch), AckBatch: ackBatch, ReleaseBlocks: b.bounded}
	if s.config.OrderingKey != nil {
		i.ReceiveBatch, i.AckBatch = 1, 1 // the next message comes once this one is acknowledged, so no receipt waits for others
	}
	return i
}

// Finish ends the source: it hands the acknowledgements that are still on their way to the server, and extends nothing any more. A consumer
// calls it last. Ack and Release after it do nothing and return an error. The connection stays open.
func (s *Source) Finish(ctx context.Context) error {
	s.finished.Store(true)
	s.letGoAll()
	if err := s.flush(ctx); err != nil {
		return wrap("nats.finish", s.name(), fmt.Errorf("acknowledgements may be lost, and their messages come again: %w", err))
	}
	return nil
}

var errFinished = errors.New("the source is finished")

// flush returns once the server has read all that was sent.
func (s *Source) flush(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return s.conn.FlushWithContext(ctx)
}

// A Backlog is what waits for a consumer: the signal to scale by.
type Backlog struct {
	Pending     uint64 // never delivered yet
	AckPending  int    // delivered and not acknowledged
	Redelivered int    // of those, delivered more than once
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

// newHeart keeps deliveries until they are let go. JetStream answers no extension: which of them are lost is found out otherwise.
func (s *Source) newHeart(ackWait time.Duration) *heart.Heart[string] {
	return heart.New(heart.Config[string]{Lease: ackWait, Batch: heldBatch, CallTimeout: callTimeout,
		Extended: func(n int) { s.counters.extended.Add(int64(n)) },
		Extend: func(_ context.Context, beats []heart.Beat[string]) []heart.Outcome {
			outcomes := make([]heart.Outcome, len(beats))
			connected := s.conn.IsConnected() // what is buffered until a reconnect would arrive too late, and all at once
			for i, b := range beats {
				outcomes[i].Failed = !connected || s.conn.Publish(b.Key, ackProgress) != nil
			}
			return outcomes
		}})
}
