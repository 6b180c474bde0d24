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
	// leastSkew is how far a sender's clock may be ahead of the database's, for any retention. Rows
	// stay this much longer than the window, or a tenth of the window if that is more.
	leastSkew = time.Hour
	// reportHolds is how long the answer to a report is relied upon. Ten minutes after this
	// consumer's last report, another program may make the consumer remember for a shorter time.
	reportHolds = 5 * time.Minute
)

// beyond returns how much longer than the window rows stay.
func beyond(window time.Duration) time.Duration { return max(window/10, leastSkew) }

// A memory is the answer to a report: the time up to which the consumer had forgotten. Purges since
// then respect the window that the report promised.
type memory struct {
	at    time.Time
	until time.Time // zero: no delivery was ever forgotten
}

// forgottenUntil caches the time until which the consumer has forgotten deliveries, as one
// transaction sees it after its claim. The database is asked at most once.
type forgottenUntil struct {
	asked bool
	until time.Time
}

// stale dead-letters a delivery so old that an earlier copy may have been purged: it is never run
// as new. Without a timestamp it counts as new. If the consumer has purged nothing yet, no delivery
// is stale, so a new consumer can read an old log from its beginning.
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
		Err: fmt.Errorf("the message is from %s, and every delivery until %s is forgotten", born.UTC().Format(time.RFC3339), r.until.UTC().Format(time.RFC3339))}), nil
}

// remembers reports whether every delivery sent at born is surely remembered, without asking the
// database. born must be within the window, which no purge has shortened since the last report, and
// later than the time up to which deliveries had been forgotten before it.
func (c *Consumer) remembers(born, now time.Time) bool {
	m, window := c.memory.Load(), c.cfg.Retention.Window()
	if m == nil || time.Since(m.at) > reportHolds {
		return false
	}
	return (window == 0 || now.Sub(born) <= window) && (m.until.IsZero() || born.After(m.until.Add(leastSkew)))
}
