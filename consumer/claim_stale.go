package consumer

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/delivery"
)

const (
	// leastSkew is how far a sender's clock may be ahead of the database's, whatever is remembered for how long. Rows stay for as long beyond
	// the window, or for a tenth of it if that is more.
	leastSkew = time.Hour
	// reportHolds is how long after a report what it has said of the memory is relied upon. Another program may remember shorter ten minutes
	// after the last report.
	reportHolds = 5 * time.Minute
)

// beyond is how much longer than the window rows stay.
func beyond(window time.Duration) time.Duration { return max(window/10, leastSkew) }

// A memory is what a report has said: until when the consumer had forgotten. Purges since then keep to the window that was promised in it.
type memory struct {
	at    time.Time
	until time.Time // zero: nothing was ever forgotten
}

// forgottenUntil holds the time until which the consumer has forgotten deliveries, as one transaction
// sees it after its claim. The database is asked once, if at all.
type forgottenUntil struct {
	asked bool
	until time.Time
}

// stale dead-letters a delivery so old that an earlier copy may have been purged: it is never run as
// new. Without a timestamp it counts as new. While nothing was ever purged nothing is stale, so a new
// consumer reads an old log from its beginning.
func (c *Consumer) stale(ctx context.Context, tx pgx.Tx, claim delivery.Claim, d pawl.Delivery, r *forgottenUntil) (*disposition, error) {
	born := d.ProducedAt
	if born.IsZero() || !d.SentAt.IsZero() && d.SentAt.Before(born) {
		born = d.SentAt
	}
	if born.IsZero() || !claim.Fresh || c.remembers(born, claim.ReceivedAt) {
		return nil, nil
	}
	if !r.asked {
		var err error
		if r.until, err = delivery.ForgottenUntil(ctx, tx, c.cfg.Name); err != nil {
			return nil, err
		}
		r.asked = true
	}
	skew, window := leastSkew, c.cfg.Retention.Window()
	if window > 0 && claim.ReceivedAt.Sub(born) > window {
		skew = beyond(window)
	}
	if r.until.IsZero() || born.After(r.until.Add(skew)) {
		return nil, nil
	}
	return c.deadOutsideLane(pawl.EventDeliveryStale, &pawl.Error{Op: "consumer.claim", Code: pawl.CodeDeliveryStale,
		Err: fmt.Errorf("it is of %s, and what came until %s is forgotten", born.UTC().Format(time.RFC3339), r.until.UTC().Format(time.RFC3339))}), nil
}

// remembers reports whether all that was sent at some time is remembered now, without asking the database: it is younger than the window, of which
// nothing is forgotten since the last report, and was not forgotten before.
func (c *Consumer) remembers(born, now time.Time) bool {
	m, window := c.memory.Load(), c.cfg.Retention.Window()
	if m == nil || time.Since(m.at) > reportHolds {
		return false
	}
	return (window == 0 || now.Sub(born) <= window) && (m.until.IsZero() || born.After(m.until.Add(leastSkew)))
}
