//go:build proof

package hatest

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/pace"
)

// A source is a queue that records each Ack. A received message stays invisible until it is
// acknowledged or released, as with a broker whose source renews it.
type source struct {
	name string // prefix of each key

	mu       sync.Mutex
	open     []*message // in the order of sending
	sent     int
	acked    map[string]bool
	ackedAt  []time.Time
	receives int
	most     int           // receives of one message
	longest  time.Duration // from a message's first receive to its acknowledgement
}

type message struct {
	d         pawl.Delivery
	visibleAt time.Time
	first     time.Time // when it was first received
	inHand    bool
	acked     bool
}

const releaseFor = time.Second // at most

// send adds a message with its own key.
func (s *source) send() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent++
	m := &message{}
	m.d = pawl.Delivery{Key: s.name + "m" + strconv.Itoa(s.sent), MessageID: s.name + strconv.Itoa(s.sent), Payload: []byte("order"), Handle: m}
	s.open = append(s.open, m)
}

func (s *source) Info() pawl.SourceInfo { return pawl.SourceInfo{} }

func (s *source) Receive(ctx context.Context, limit int) ([]pawl.Delivery, error) {
	for began := time.Now(); ctx.Err() == nil; pace.Sleep(ctx, 5*time.Millisecond) {
		if batch := s.visible(limit); len(batch) > 0 || time.Since(began) > time.Second {
			return batch, nil
		}
	}
	return nil, ctx.Err()
}

func (s *source) visible(limit int) (batch []pawl.Delivery) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for _, m := range s.open {
		if len(batch) == limit {
			break
		}
		if !m.inHand && !m.visibleAt.After(now) {
			m.inHand = true
			if m.d.Receives++; m.d.Receives == 1 {
				m.first = now
			}
			s.receives++
			s.most = max(s.most, m.d.Receives)
			batch = append(batch, m.d)
		}
	}
	return batch
}

func (s *source) Ack(_ context.Context, rs ...pawl.Receipt) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range rs {
		m := r.Handle().(*message)
		if !m.acked {
			m.acked = true
			s.acked[m.d.Key] = true
			s.ackedAt = append(s.ackedAt, time.Now())
			s.longest = max(s.longest, time.Since(m.first))
		}
	}
	left := s.open[:0]
	for _, m := range s.open {
		if !m.acked {
			left = append(left, m)
		}
	}
	s.open = left
	return nil
}

func (s *source) Release(_ context.Context, delay time.Duration, ds ...pawl.Delivery) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range ds {
		m := d.Handle.(*message)
		m.inHand, m.visibleAt = false, time.Now().Add(min(delay, releaseFor))
	}
	return nil
}

func (s *source) waiting() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.open)
}
