package counted

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/internal/pace"
	"github.com/pawl-go/pawl/outbox"
)

// copied creates n orders and adds about two random copies of each. A copy follows the first send
// of its order, because a producer resends only what it has sent before. Without ordering, all are
// shuffled.
func (s *stage) copied(n int) []Message {
	var all []Message
	perRow := s.book.lanes
	for made := 0; made < n; made += perRow {
		row := s.book.next(min(perRow, n-made))
		for _, o := range row {
			all = append(all, s.book.message(o))
		}
		known := s.book.all()
		for range 2 * len(row) {
			all = append(all, s.book.message(known[s.random.IntN(len(known))]))
		}
	}
	if !s.transport.Ordered {
		s.random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	}
	return all
}

// sendPatience is how long a producer retries unconfirmed messages.
const sendPatience = 90 * time.Second

// send sends messages until all are confirmed. No call contains two messages of a lane, so the
// second cannot arrive without the first.
func (s *stage) send(ms ...Message) error {
	for len(ms) > 0 {
		n, seen := 0, map[string]bool{}
		for n < len(ms) && n < 100 && !seen[ms[n].Lane] {
			seen[ms[n].Lane] = true
			n++
		}
		if err := s.sendSome(ms[:n]); err != nil {
			return err
		}
		ms = ms[n:]
	}
	return nil
}

func (s *stage) sendSome(ms []Message) error {
	for end := time.Now().Add(sendPatience); ; {
		ctx, cancel := context.WithTimeout(s.Context(), 10*time.Second)
		err := s.transport.Send(ctx, s.queue, ms)
		cancel()
		if err == nil {
			return nil
		}
		if time.Now().After(end) || !pace.Sleep(s.Context(), 100*time.Millisecond) {
			return fmt.Errorf("sending to %s: %w", s.transport.Name, err)
		}
		s.verdict.fault("send without an answer")
	}
}

// sendNew sends n new orders once each.
func (s *stage) sendNew(n int) error {
	s.putting.Lock()
	defer s.putting.Unlock()
	var ms []Message
	for _, o := range s.book.next(n) {
		ms = append(ms, s.book.message(o))
	}
	return s.send(ms...)
}

// appendNew appends n new orders to the outbox. A relay publishes them.
func (s *stage) appendNew(n int) error {
	s.putting.Lock()
	defer s.putting.Unlock()
	events := make([]outbox.Event, n)
	for i, o := range s.book.next(n) {
		m := s.book.message(o)
		events[i] = outbox.Event{Type: "OrderPlaced", AggregateType: "lane", AggregateID: o.Lane, Payload: m.Body, ContentType: "application/json"}
	}
	err := pgx.BeginFunc(s.Context(), s.pool, func(tx pgx.Tx) error {
		_, err := outbox.Append(s.Context(), tx, events...)
		return err
	})
	if err == nil {
		outbox.Kick(s.pool)
	}
	return err
}

// A flow sends new orders until it is stopped.
type flow struct {
	stop context.CancelFunc
	done sync.WaitGroup
	err  error
}

// rate returns the load of a short or a long run, limited to the transport's Rate.
func (s *stage) rate(short, long int) int {
	if s.transport.Rate > 0 {
		return min(s.transport.Rate, sized(short, long))
	}
	return sized(short, long)
}

// flow starts sending perSecond orders a second with put.
func (s *stage) flow(perSecond int, put func(n int) error) *flow {
	ctx, cancel := context.WithCancel(s.Context())
	f := &flow{stop: cancel}
	f.done.Go(func() {
		const ticks = 10
		for rest := 0; f.err == nil && pace.Sleep(ctx, time.Second/ticks); {
			rest += perSecond
			if n := rest / ticks; n > 0 {
				f.err = put(n)
				rest -= n * ticks
			}
		}
	})
	s.Cleanup(func() { _ = f.end() })
	return f
}

// end stops the flow and waits until its last put returns.
func (f *flow) end() error {
	f.stop()
	f.done.Wait()
	if errors.Is(f.err, context.Canceled) {
		return nil // the test has ended
	}
	return f.err
}
