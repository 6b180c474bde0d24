package flow_test

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/pawl-go/pawl"
)

// A memorySource is an at-least-once queue without a broker: what is neither acknowledged nor released comes again when
// its invisibility ends.
type memorySource struct {
	mu       sync.Mutex
	messages []*message
	acked    int
	invalid  int // acks with a receipt that no commit made
}

type message struct {
	d         pawl.Delivery
	visibleAt time.Time
	acked     bool
}

const invisibility = 3 * time.Second

func (s *memorySource) send(ds ...pawl.Delivery) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range ds {
		m := &message{d: d}
		m.d.MessageID = fmt.Sprintf("message-%d", len(s.messages))
		m.d.Handle = m
		s.messages = append(s.messages, m)
	}
}

func (s *memorySource) Receive(ctx context.Context, limit int) ([]pawl.Delivery, error) {
	for {
		if batch := s.visible(limit); len(batch) > 0 {
			return batch, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func (s *memorySource) visible(limit int) (batch []pawl.Delivery) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	held := map[string]bool{} // ordering keys of which a message is in flight, as an SQS FIFO queue has them
	for _, m := range s.messages {
		key := m.d.OrderingKey
		if key != "" && !m.acked && m.visibleAt.After(now) {
			held[key] = true
		}
		if len(batch) < limit && !m.acked && !m.visibleAt.After(now) && !held[key] {
			m.visibleAt = now.Add(invisibility)
			m.d.Receives++
			batch = append(batch, m.d)
		}
	}
	return batch
}

func (s *memorySource) Ack(_ context.Context, rs ...pawl.Receipt) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range rs {
		if !r.Valid() {
			s.invalid++
			continue
		}
		if m := r.Handle().(*message); !m.acked {
			m.acked = true
			s.acked++
		}
	}
	return nil
}

func (s *memorySource) Release(_ context.Context, delay time.Duration, ds ...pawl.Delivery) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range ds {
		d.Handle.(*message).visibleAt = time.Now().Add(min(delay, 50*time.Millisecond)) // tests are impatient
	}
	return nil
}

func (s *memorySource) open() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.messages) - s.acked
}

// idle counts the messages that are waiting to be received.
func (s *memorySource) idle() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.messages {
		if !m.acked && !m.visibleAt.After(time.Now()) {
			n++
		}
	}
	return n
}

// receives counts all receives of all messages.
func (s *memorySource) receives() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.messages {
		n += m.d.Receives
	}
	return n
}
