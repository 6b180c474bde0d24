package pawlnats

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/transport/internal/heart"
)

// An identity distinguishes a stream and a consumer from earlier ones of the same names. A
// recreated stream numbers its messages from 1 again, and JetStream identifies the message to
// acknowledge by number only. An old acknowledgement would remove a new message.
type identity struct{ stream, consumer time.Time }

// A binding is the last known state of the stream and the consumer.
type binding struct {
	identity identity
	ackWait  time.Duration
	heart    *heart.Heart[string] // extends at each third of ackWait
	horizon  time.Duration
	batch    int  // most messages per pull
	bounded  bool // MaxAckPending is set
	bytes    int
	wait     time.Duration
	warnings []string
}

// A binder keeps the binding, and knows when it is in doubt: after a reconnect, after JetStream
// reported the consumer as gone, and when the consumer's delivery numbers start at 1 again.
type binder struct {
	asking     chan struct{} // a semaphore, held while asking JetStream
	now        atomic.Pointer[binding]
	reconnects atomic.Uint64 // reconnects of the connection at that time
	doubt      atomic.Bool
	delivered  atomic.Uint64 // highest delivery number of the consumer
}

func (b *binder) deliveredUpTo(number uint64) {
	for before := b.delivered.Load(); number > before && !b.delivered.CompareAndSwap(before, number); {
		before = b.delivered.Load()
	}
}

// bind returns the binding, and asks JetStream again if it is in doubt.
func (s *Source) bind(ctx context.Context) (*binding, error) {
	if err := s.connected(ctx); err != nil {
		return nil, err
	}
	if b := s.certain(); b != nil {
		return b, nil
	}
	select {
	case s.binder.asking <- struct{}{}:
		defer func() { <-s.binder.asking }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if b := s.certain(); b != nil {
		return b, nil // another call asked meanwhile
	}
	return s.rebind(ctx)
}

func (s *Source) certain() *binding {
	b := s.binder.now.Load()
	if b == nil || s.binder.doubt.Load() || s.binder.reconnects.Load() != s.conn.Stats().Reconnects {
		return nil
	}
	return b
}

// rebind asks JetStream. The caller must hold binder.asking.
func (s *Source) rebind(ctx context.Context) (*binding, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	reconnects := s.conn.Stats().Reconnects
	s.binder.doubt.Store(false)
	b, err := s.look(ctx)
	if err != nil {
		s.binder.doubt.Store(true)
		return nil, err
	}
	before := s.binder.now.Swap(b)
	s.binder.reconnects.Store(reconnects)
	s.binder.delivered.Store(0) // later deliveries belong to this identity
	switch {
	case before == nil:
	case before.identity != b.identity:
		what := "consumer"
		if before.identity.stream != b.identity.stream {
			what = "stream"
		}
		s.report.Emit(ctx, pawl.Event{Kind: pawl.EventError, Op: "nats.receive",
			Err: fmt.Errorf("the %s of %s was recreated: everything that it holds is delivered again, and duplicates are absorbed", what, s.name())})
		s.lost(ctx, "nats.receive", s.letGoAll())
	case before.ackWait == b.ackWait:
		b.heart = before.heart
	}
	return b, nil
}

func (s *Source) look(ctx context.Context) (*binding, error) {
	stream, err := s.js.Stream(ctx, s.stream)
	if err != nil {
		return nil, err
	}
	consumer, err := stream.Consumer(ctx, s.consumer)
	if err != nil {
		return nil, err
	}
	si, ci := stream.CachedInfo(), consumer.CachedInfo()
	k := ci.Config
	if err := s.config.unfit(s.name(), k); err != nil {
		return nil, err
	}
	b := &binding{identity: identity{si.Created, ci.Created}, ackWait: k.AckWait, heart: s.newHeart(k.AckWait), horizon: horizon(si.Config),
		batch: maxBatch, wait: s.config.Wait, warnings: warnings(si.Config, s.conn.ConnectedServerVersion()), bytes: max(minPullBytes, int(s.conn.MaxPayload())+headerOverhead)}
	if k.MaxRequestBatch > 0 {
		b.batch = min(b.batch, k.MaxRequestBatch)
	}
	if k.MaxAckPending > 0 {
		b.bounded = true
		b.batch = min(b.batch, k.MaxAckPending)
	}
	if k.MaxRequestExpires > 0 {
		b.wait = min(b.wait, k.MaxRequestExpires)
	}
	if k.MaxRequestMaxBytes > 0 {
		b.bytes = min(b.bytes, k.MaxRequestMaxBytes)
	}
	return b, nil
}

// connected waits for the connection, at most Config.Wait.
func (s *Source) connected(ctx context.Context) error {
	if s.conn.IsConnected() {
		return nil
	}
	changes := s.conn.StatusChanged(nats.CONNECTED, nats.CLOSED)
	defer s.conn.RemoveStatusListener(changes)
	ctx, cancel := context.WithTimeout(ctx, s.config.Wait)
	defer cancel()
	for !s.conn.IsConnected() {
		if s.conn.IsClosed() {
			return nats.ErrConnectionClosed
		}
		select {
		case <-changes:
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.Canceled) {
				return ctx.Err()
			}
			return fmt.Errorf("%w: reconnecting", nats.ErrDisconnected)
		}
	}
	return nil
}

// askHorizon asks JetStream anew, and returns how long the stream keeps a message.
func (s *Source) askHorizon(ctx context.Context) (time.Duration, error) {
	if err := s.connected(ctx); err != nil {
		return 0, err
	}
	select {
	case s.binder.asking <- struct{}{}:
		defer func() { <-s.binder.asking }()
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	b, err := s.rebind(ctx)
	if err != nil {
		return 0, err
	}
	return b.horizon, nil
}
