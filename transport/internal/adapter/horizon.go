package adapter

import (
	"context"
	"sync"
	"time"
)

const (
	horizonEvery = 5 * time.Minute // between two questions
	horizonAgain = time.Minute     // after one without an answer
)

// A Horizon is the last answer of a broker to how long messages may come again. Settings change under
// a running consumer, so an answer that is older than five minutes is asked for again. If that fails
// the last one holds, and the next question is a minute later.
type Horizon struct {
	Ask     func(ctx context.Context) (time.Duration, error)
	Failed  func(err error) // told of an error of Ask; may be nil
	Timeout time.Duration   // of one Ask by Get

	mu    sync.Mutex
	known time.Duration
	asked time.Time
}

// Learn asks now.
func (h *Horizon) Learn(ctx context.Context) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.learn(ctx)
}

// Get returns the last answer, after asking if it is old.
func (h *Horizon) Get() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	if time.Since(h.asked) >= horizonEvery {
		ctx, cancel := context.WithTimeout(context.Background(), h.Timeout)
		defer cancel()
		_ = h.learn(ctx) // told to Failed
	}
	return h.known
}

func (h *Horizon) learn(ctx context.Context) error {
	h.asked = time.Now()
	known, err := h.Ask(ctx)
	if err == nil {
		h.known = known
		return nil
	}
	h.asked = h.asked.Add(horizonAgain - horizonEvery)
	if h.Failed != nil {
		h.Failed(err)
	}
	return err
}
