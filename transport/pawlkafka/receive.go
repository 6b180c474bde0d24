package pawlkafka

import (
	"context"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/transport/internal/adapter"
)

// Receive waits at most Config.Wait for the first record and returns at most max deliveries, in the order of their offsets within each
// partition. It may return none. The first call joins the group.
//
// Records with a key are ordered: the OrderingKey is the topic and the key, and of each nothing more is handed out while a
// delivery of it is out from an earlier Receive, or waits for the delay of its Release. One Receive may return several of a key. More
// partitions added to a topic give keys to other partitions, and break that order once.
//
// Kafka counts no deliveries, so Delivery.Receives is what this source knows: how often its partition has changed hands by a crash since
// it last moved on, and how often the delivery was given back since.
//
// Errors are those of fetches, of the join of the group and of its commits: the client goes on trying by itself. When ctx has ended
// nothing is fetched any more. The source stays a member of the group until Finish, so that what is being handled is not handed
// elsewhere.
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
				ds[i] = s.delivery(h) // calls your KeyFrom: under no lock
			}
			s.handedOut(ctx, ds)
			return ds, nil
		}
		soon := time.NewTimer(next)
		select {
		case <-changed:
		case <-soon.C: // the delay of one that was given back is over
		case <-waited.C:
			soon.Stop()
			s.emit(ctx, pawl.Event{Kind: pawl.EventEmptyReceive, Op: op})
			return nil, nil
		case <-ctx.Done():
			soon.Stop()
			s.pause()
			return nil, &pawl.Error{Op: op, Err: ctx.Err()}
		}
		soon.Stop()
	}
}

// start joins the group at the first call, and fetches again after a pause.
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

// pause fetches nothing more.
func (s *Source) pause() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.stopped && !s.finishing {
		s.stopped = true
		s.client.PauseFetchTopics(s.topics...)
	}
}

// collect hands out what may be handed out, partition by partition, each first in its turn. It returns how long it is until a delay ends,
// and what is closed when anything changes.
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
		s.order = append(s.order[1:], p) // the next has its turn first
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

// handedOut counts and reports what a Receive returns.
func (s *Source) handedOut(ctx context.Context, ds []pawl.Delivery) {
	var age time.Duration
	for _, d := range ds {
		if !d.SentAt.IsZero() {
			age = max(age, time.Since(d.SentAt))
		}
		if !d.ProducedAt.IsZero() {
			age = max(age, time.Since(d.ProducedAt))
		}
	}
	s.counters.received.Add(int64(len(ds)))
	s.emit(ctx, pawl.Event{Kind: pawl.EventReceived, Op: "kafka.receive", Count: len(ds), Age: age})
}
