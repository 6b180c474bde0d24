package inbox

import (
	"context"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/contract"
)

// Retention says how long deliveries are remembered: as long as the longest of these. What comes again later than that runs as
// new, unless it says how old it is. Shorter keeps the table smaller: a million rows are about 150 MB with their indexes.
type Retention struct {
	// ClientRetry is how long a sender keeps trying, with the same key.
	ClientRetry time.Duration
	// QueueRedelivery is how long the broker may hand a message out again, its dead letter queue and redrives included.
	QueueRedelivery time.Duration
	// Reconciliation is how far back somebody may send again what seems to be missing.
	Reconciliation time.Duration
	// Audit is how long you want to be able to ask whether a message was seen.
	Audit time.Duration
	// Forever forgets nothing. The table grows without bound.
	Forever bool
}

// Window is the longest of the four, 0 if none is given or nothing is to be forgotten.
func (r Retention) Window() time.Duration {
	if r.Forever {
		return 0
	}
	return max(r.ClientRetry, r.QueueRedelivery, r.Reconciliation, r.Audit)
}

// Purge forgets up to limit deliveries (1 to 10,000) of a consumer that came first longer ago than olderThan, and returns how
// many. What a job still owns stays. Call it again until it returns less than limit. A claim of the very key waits for the end of
// one call, so keep the limit at about 1,000, and every call a transaction of its own.
func Purge(ctx context.Context, db pawl.DB, consumer string, olderThan time.Duration, limit int) (purged int, err error) {
	row, err := contract.InboxPurge(ctx, db, contract.PurgeArgs{Consumer: consumer, OlderThan: olderThan, Limit: limit})
	return row.Purged, err
}

// Estimate says about how many deliveries of all consumers are remembered, from the planner's statistics.
func Estimate(ctx context.Context, db pawl.DB) (rows int64, err error) {
	err = db.QueryRow(ctx, "select greatest(c.reltuples, 0)::bigint from pg_class as c where c.oid = 'pawl.inbox'::regclass").Scan(&rows)
	return rows, err
}
