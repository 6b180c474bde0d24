package pawlnats

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/transport/internal/adapter"
)

var noLimit time.Time // JetStream sets no limit on extensions

// Receive makes one pull request. It waits at most Config.Wait for the first message and returns
// the available ones, at most max deliveries and 16 MiB, or the server's largest message if that is
// more. It may return none. From here on the source extends each delivery until Ack or Release.
//
// While the connection is broken, Receive waits for it too, and then returns an error: poll again
// after a pause. After an error that needs an operator (the consumer is gone or was changed, the
// connection is closed), the next request waits by itself, 5 s to a minute.
//
// When ctx ends, Receive cancels its request, releases arrived messages, and returns ctx's error.
func (s *Source) Receive(ctx context.Context, max int) ([]pawl.Delivery, error) {
	const op = "nats.receive"
	if max < 1 {
		return nil, adapter.BadArgument(op, "max is %d, must be at least 1", max)
	}
	if s.finished.Load() {
		return nil, &pawl.Error{Op: op, Err: errFinished}
	}
	s.pace.Await(ctx)
	if err := ctx.Err(); err != nil {
		return nil, &pawl.Error{Op: op, Err: err}
	}
	ds, err := s.pullOnce(ctx, max)
	s.pace.Polled(err, needsOperator, false)
	if stopped := ctx.Err(); stopped != nil {
		return nil, &pawl.Error{Op: op, Err: errors.Join(stopped, s.Release(context.WithoutCancel(ctx), 0, ds...))}
	}
	if err != nil {
		s.counters.pollErrors.Add(1)
		if len(ds) == 0 {
			return nil, wrap(op, s.name(), err)
		}
		return ds, nil // the next request returns the error
	}
	return ds, nil
}

func (s *Source) pullOnce(ctx context.Context, most int) ([]pawl.Delivery, error) {
	b, err := s.bind(ctx)
	if err != nil {
		return nil, err
	}
	before := s.binder.delivered.Load()
	messages, err := s.pull(ctx, b, min(most, b.batch))
	if errors.Is(err, jetstream.ErrConsumerDeleted) || errors.Is(err, nats.ErrNoResponders) {
		s.binder.doubt.Store(true)
	}
	if err == nil {
		s.counters.polls.Add(1)
	}
	// Nil: not from JetStream, published to the inbox by another client.
	metas := make([]*nats.MsgMetadata, len(messages))
	for i, m := range messages {
		if metas[i], _ = m.Metadata(); metas[i] != nil && metas[i].Sequence.Consumer <= before {
			s.binder.doubt.Store(true)
		}
	}
	if b, err = s.rebound(ctx, b, err); b == nil {
		return nil, err // their identity is unknown: they come again after AckWait
	}
	ds := make([]pawl.Delivery, 0, len(messages))
	lost := 0
	for i, m := range messages {
		meta := metas[i]
		if meta == nil {
			continue
		}
		s.binder.deliveredUpTo(meta.Sequence.Consumer)
		d := s.delivery(m, meta, b)
		lost += s.hold(d.Handle.(*arrival))
		if d.Receives > 1 {
			s.counters.redelivered.Add(1)
		}
		ds = append(ds, d)
	}
	s.counters.received.Add(int64(len(ds)))
	s.lost(ctx, "nats.receive", lost)
	if len(ds) == 0 && err == nil {
		s.counters.emptyPolls.Add(1)
	}
	if len(ds) > 0 || err == nil {
		s.report.Received(ctx, "nats.receive", ds)
	}
	return ds, err
}

// rebound returns the binding of messages just received. If the consumer repeats delivery numbers,
// it asks JetStream again: the consumer was recreated, or its server forgot deliveries in a crash.
func (s *Source) rebound(ctx context.Context, b *binding, err error) (*binding, error) {
	if err != nil || !s.binder.doubt.Load() {
		return b, err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	return s.bind(ctx)
}

func (s *Source) delivery(m *nats.Msg, meta *nats.MsgMetadata, b *binding) pawl.Delivery {
	d := pawl.Delivery{
		MessageID:  position(meta),
		Payload:    m.Data,
		Attributes: attributesOf(m),
		Receives:   int(min(meta.NumDelivered, 1<<30)),
		Log:        s.stream,
		Offset:     int64(meta.Sequence.Stream),
		SentAt:     meta.Timestamp,
		ProducedAt: producedAt(m),
		Handle:     &arrival{owner: s, reply: m.Reply, sequence: meta.Sequence.Stream, identity: b.identity, heart: b.heart},
	}
	s.identify(m, &d)
	return d
}
