package pawlkafka

import (
	"context"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/transport/internal/adapter"
)

// Receive waits at most Config.Wait for the first record and returns at most max deliveries, in
// offset order within each partition. It may return none. The first call joins the group.
//
// Records with a key are ordered by topic and key, their OrderingKey. While a delivery from an
// earlier Receive is out, or waits for its Release delay, no later one of its OrderingKey is handed
// out. One Receive may return several of the same OrderingKey. Adding partitions to a topic moves
// keys to other partitions, and breaks their order once.
//
// Kafka does not count deliveries. Delivery.Receives counts the partition's takeovers after crashes
// since its mark last moved, and the Releases of this delivery since.
//
// Receive returns errors of fetches, of the group join and of the group's commits; the client
// retries by itself. After ctx ends, fetching stops, but the source stays a member until Finish. So
// deliveries being handled are not given to other members.
func (s *Source) Receive(ctx context.Context, max int) ([]pawl.Delivery, error) {
	const op = "kafka.receive"
	if max < 1 {
		return nil, adapter.BadArgument(op, "max is %d, must be at least 1", max)
	}
	if err := ctx.Err(); err != nil {
		s.pause()
		return nil, &pawl.Error{Op: op, Err: err}
	}
	if err := s.start(); err != nil {
		return nil, err
	}
	waited := time.NewTimer(s.config.Wait)
	defer waited.Stop()
	for {
		hs, next, changed, err := s.collect(max)
		switch {
		case err != nil:
			s.counters.receiveErrors.Add(1)
			return nil, wrap(op, s.group, err)
		case len(hs) > 0:
			ds := make([]pawl.Delivery, len(hs))
			for i, h := range hs {
				ds[i] = s.delivery(h) // calls the caller's KeyFrom: hold no lock
			}
			s.counters.received.Add(int64(len(ds)))
			s.report.Received(ctx, op, ds)
			return ds, nil
		}
		soon := time.NewTimer(next)
		select {
		case <-changed:
		case <-soon.C: // a Release delay is over
		case <-waited.C:
			soon.Stop()
			s.report.Received(ctx, op, nil)
			return nil, nil
		case <-ctx.Done():
			soon.Stop()
			s.pause()
			return nil, &pawl.Error{Op: op, Err: ctx.Err()}
		}
		soon.Stop()
	}
}

// start joins the group at the first call, and resumes fetching after a pause.
func (s *Source) start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.finishing:
		return &pawl.Error{Op: "kafka.receive", Err: errFinished}
	case s.started && !s.stopped:
		return nil
	}
	if s.stopped {
		s.stopped = false
		s.client.ResumeFetchTopics(s.topics...)
	}
	if s.started {
		return nil
	}
	s.started = true
	ctx, stop := context.WithCancel(s.base)
	s.stop = stop
	s.running.Go(func() { s.pump(ctx) })
	s.running.Go(func() { s.commits(ctx) })
	s.client.AddConsumeTopics(s.topics...)
	return nil
}

func (s *Source) pause() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.stopped && !s.finishing {
		s.stopped = true
		s.client.PauseFetchTopics(s.topics...)
	}
}

// collect hands out records, starting with the partition whose turn it is. It also returns the time
// until the next Release delay ends, and a channel that is closed on any change.
func (s *Source) collect(max int) (hs []handout, next time.Duration, changed <-chan struct{}, err error) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped || s.finishing {
		return nil, s.config.Wait, s.changed, nil
	}
	next = s.config.Wait
	for range len(s.order) {
		p := s.order[0]
		s.order = append(s.order[1:], p) // round robin
		if p.leaving || !p.counted {
			continue
		}
		for _, at := range p.take(max-len(hs), now) {
			hs = append(hs, handout{at: at, record: at.record, topic: p.topicID, receives: p.receives(at)})
		}
		if due := p.window.due(); !due.IsZero() && due.After(now) {
			next = min(next, due.Sub(now))
		}
		if len(hs) == max {
			break
		}
	}
	if len(hs) == 0 && len(s.errs) > 0 {
		err, s.errs = s.errs[0], s.errs[1:]
	}
	return hs, next, s.changed, err
}
