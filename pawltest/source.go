package pawltest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/pace"
)

// A Source is an in-memory at-least-once queue for tests: a [pawl.Source] that delivers what you
// send, in order. It redelivers a message when its invisibility ends, unless it was settled. To
// deliver a message twice, send it twice. As in a FIFO queue of SQS, deliveries of one OrderingKey
// are out in one receive at a time. The zero value is ready, and safe for concurrent use.
type Source struct {
	// Invisibility is how long a received delivery is hidden. Default 30 s, as in SQS.
	Invisibility time.Duration

	mu       sync.Mutex
	messages []*message
	acked    int
}

type message struct {
	d         pawl.Delivery
	visibleAt time.Time
	acked     bool
}

const (
	defaultInvisibility = 30 * time.Second
	releasedFor         = 50 * time.Millisecond // at most, so that tests are fast
	sourcePoll          = 5 * time.Millisecond
	sourceWait          = time.Second
)

// Send adds deliveries. One without a MessageID gets one. Receives counts up from the set value.
func (s *Source) Send(ds ...pawl.Delivery) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range ds {
		m := &message{d: d}
		if m.d.MessageID == "" {
			m.d.MessageID = fmt.Sprintf("message-%d", len(s.messages)+1)
		}
		m.d.Handle = m
		s.messages = append(s.messages, m)
	}
}

// Receive returns the visible deliveries. If there are none, it waits up to a second.
func (s *Source) Receive(ctx context.Context, limit int) ([]pawl.Delivery, error) {
	for began := time.Now(); ctx.Err() == nil; pace.Sleep(ctx, sourcePoll) {
		if batch := s.visible(limit); len(batch) > 0 || time.Since(began) > sourceWait {
			return batch, nil
		}
	}
	return nil, ctx.Err()
}

func (s *Source) visible(limit int) (batch []pawl.Delivery) {
	s.mu.Lock()
	defer s.mu.Unlock()
	invisible := s.Invisibility
	if invisible <= 0 {
		invisible = defaultInvisibility
	}
	now := time.Now()
	held := map[string]bool{} // ordering keys with a message in flight
	for _, m := range s.messages {
		key := m.d.OrderingKey
		if key != "" && !m.acked && m.visibleAt.After(now) {
			held[key] = true
		}
		if len(batch) < limit && m.waits(now) && !held[key] {
			m.visibleAt = now.Add(invisible)
			m.d.Receives++
			batch = append(batch, m.d)
		}
	}
	return batch
}

func (m *message) waits(now time.Time) bool { return !m.acked && !m.visibleAt.After(now) }

// Info returns the zero SourceInfo.
func (s *Source) Info() pawl.SourceInfo { return pawl.SourceInfo{} }

// ErrNoCommit is the error of [Source.Ack] for a receipt that does not come from a commit.
var ErrNoCommit = errors.New("pawltest: the receipt does not come from a commit")

// Ack removes deliveries. Receipts that do not come from a commit are refused with [ErrNoCommit].
func (s *Source) Ack(_ context.Context, rs ...pawl.Receipt) (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range rs {
		if !r.Valid() {
			err = ErrNoCommit
			continue
		}
		if m := r.Handle().(*message); !m.acked {
			m.acked = true
			s.acked++
		}
	}
	return err
}

// Release makes deliveries visible again after the delay, or 50 ms if that is shorter.
func (s *Source) Release(_ context.Context, delay time.Duration, ds ...pawl.Delivery) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range ds {
		d.Handle.(*message).visibleAt = time.Now().Add(min(delay, releasedFor))
	}
	return nil
}

// Open returns the number of deliveries that are not acknowledged.
func (s *Source) Open() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.messages) - s.acked
}

// Waiting returns the number of deliveries that could be received now.
func (s *Source) Waiting() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.messages {
		if m.waits(time.Now()) {
			n++
		}
	}
	return n
}

// Receives returns the total number of times that deliveries were received.
func (s *Source) Receives() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.messages {
		n += m.d.Receives
	}
	return n
}
