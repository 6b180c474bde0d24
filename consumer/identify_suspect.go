package consumer

import (
	"context"
	"sync"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/delivery"
)

const (
	// deathsAsked is how long a cached time of the last death stays valid.
	deathsAsked = time.Second
	// deathsPatience bounds the query.
	deathsPatience = 5 * time.Second
	// clockSkew is how far the sender's clock may be ahead of the database's.
	clockSkew = time.Minute
)

// suspected reports whether a delivery may have killed the process that handled it. It must have
// arrived SoloAfter times without leaving a row, and a process of this consumer must have died
// since it was sent. If its time of sending is unknown, any known death counts. Without a death
// there is another reason: an outage, a slow first copy, a busy resource.
func (c *Consumer) suspected(ctx context.Context, d pawl.Delivery) (bool, error) {
	switch {
	case d.Receives < c.handler.SoloAfter:
		return false, nil
	case c.handler.SoloAfter == 1:
		return true, nil // the setting suspects every delivery
	}
	died, err := c.deaths.last(ctx, c)
	if err != nil || died == nil {
		return false, err
	}
	return d.SentAt.IsZero() || died.Add(clockSkew).After(d.SentAt), nil
}

// deaths caches when a process of this consumer last died.
type deaths struct {
	mu    sync.Mutex
	asked time.Time
	died  *time.Time // nil: no death is known
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
