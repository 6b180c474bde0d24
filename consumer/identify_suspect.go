package consumer

import (
	"context"
	"sync"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/delivery"
)

const (
	// deathsAsked is how long the answer to the question when a process of this consumer last died is believed.
	deathsAsked = time.Second
	// deathsPatience bounds that question.
	deathsPatience = 5 * time.Second
	// clockSkew is how far the clock of the sender may be ahead of the database's.
	clockSkew = time.Minute
)

// suspected reports whether a delivery may have killed the process that had it: it has come often without leaving a row, and a
// process of this consumer has died since it was sent, or when it was sent is not known. Without a death it came often for another
// reason: an outage, a slow first copy, a busy resource.
func (c *Consumer) suspected(ctx context.Context, d pawl.Delivery) (bool, error) {
	switch {
	case d.Receives < c.handler.SoloAfter:
		return false, nil
	case c.handler.SoloAfter == 1:
		return true, nil // they asked for it
	}
	died, err := c.deaths.last(ctx, c)
	if err != nil || died == nil {
		return false, err
	}
	return d.SentAt.IsZero() || died.Add(clockSkew).After(d.SentAt), nil
}

// deaths remembers when a process of this consumer last died.
type deaths struct {
	mu    sync.Mutex
	asked time.Time
	died  *time.Time // nil: none is known to have
}

func (m *deaths) last(ctx context.Context, c *Consumer) (*time.Time, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.asked.IsZero() && time.Since(m.asked) < deathsAsked {
		return m.died, nil
	}
	ctx, cancel := context.WithTimeout(ctx, deathsPatience)
	defer cancel()
	died, err := delivery.LastDeath(ctx, c.pool, c.queue)
	if err == nil {
		m.asked, m.died = time.Now(), died
	}
	return died, err
}
