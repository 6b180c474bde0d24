package adapter

import (
	"context"
	"sync"
	"time"
)

const (
	horizonEvery = 5 * time.Minute // between two calls of Ask
	horizonAgain = time.Minute     // after a failed one
)

// A Horizon caches a broker's answer to how long it may redeliver messages. Settings may change
// while a consumer runs, so Get asks again after five minutes. If that fails, the last answer
// holds, and Get asks again a minute later.
type Horizon struct {
	Ask     func(ctx context.Context) (time.Duration, error)
	Failed  func(err error) // called with errors of Ask; may be nil
	Timeout time.Duration   // of one Ask by Get

	mu      sync.Mutex
	longest time.Duration
	asked   time.Time
}

// Learn calls Ask now.
func (h *Horizon) Learn(ctx context.Context) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.learn(ctx)
}

// Get returns the last answer. If it is old, Get calls Ask first.
func (h *Horizon) Get() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	if time.Since(h.asked) >= horizonEvery {
		ctx, cancel := context.WithTimeout(context.Background(), h.Timeout)
		defer cancel()
		_ = h.learn(ctx) // Failed gets the error
	}
	return h.longest
}

func (h *Horizon) learn(ctx context.Context) error {
	h.asked = time.Now()
	longest, err := h.Ask(ctx)
	if err == nil {
		h.longest = longest
		return nil
	}
	h.asked = h.asked.Add(horizonAgain - horizonEvery)
	if h.Failed != nil {
		h.Failed(err)
	}
	return err
}
