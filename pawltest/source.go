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

// A Source is an at-least-once queue without a broker, for tests: a [pawl.Source] that hands out what you send, in that order,
// and again whatever is neither acknowledged nor released when its invisibility ends. Send a delivery twice to have it come twice.
// Of deliveries with one OrderingKey, one receive at a time has some, as with a FIFO queue of SQS. The zero value is ready; all
// methods may be called at once.
type Source struct {
	// Invisibility is how long a delivery that was received stays away from others. Default 30 s, as SQS has it.
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
	releasedFor         = 50 * time.Millisecond // at most: tests are impatient
	sourcePoll          = 5 * time.Millisecond
	sourceWait          = time.Second
)

// Send puts deliveries into the queue. Each without a MessageID gets one of its own; a Receives that is set counts on.
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

// Receive returns what is visible, and waits for it, up to a second, if there is nothing.
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
	held := map[string]bool{} // ordering keys of which a message is in flight
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

// Info claims nothing.
func (s *Source) Info() pawl.SourceInfo { return pawl.SourceInfo{} }

// ErrNoCommit is what [Source.Ack] says of a receipt that no commit has made.
var ErrNoCommit = errors.New("pawltest: a receipt that no commit has made")

// Ack removes deliveries, but for those with [ErrNoCommit].
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

// Release makes deliveries visible again after the delay, of which it waits 50 ms at most.
func (s *Source) Release(_ context.Context, delay time.Duration, ds ...pawl.Delivery) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range ds {
		d.Handle.(*message).visibleAt = time.Now().Add(min(delay, releasedFor))
	}
	return nil
}

// Open returns how many deliveries are not acknowledged.
func (s *Source) Open() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.messages) - s.acked
}

// Waiting returns how many deliveries could be received now.
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

// Receives returns how often deliveries were received, all together.
func (s *Source) Receives() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.messages {
		n += m.d.Receives
	}
	return n
}
