package delivery

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/catalog"
	"github.com/pawl-go/pawl/internal/contract"
)

// A Promise is the answer to a [Report].
type Promise struct {
	Holds          time.Duration // for how long the consumer remembers; 0 is for ever
	ForgottenUntil time.Time     // what first came until then may be forgotten; zero: nothing was ever forgotten
}

// Report says in the database for how long a consumer remembers its deliveries, 0 for ever, and how long after it was sent a message
// may be delivered, 0 if nobody knows. Call it at the start and once a minute. It returns what holds: of several programs the longest,
// until it has not been said for ten minutes. [Purge] refuses to forget sooner.
func Report(ctx context.Context, db pawl.DB, consumer string, window, horizon time.Duration) (Promise, error) {
	row, err := contract.ConsumerReport(ctx, db, consumer, min(window, longestReport), min(horizon, longestReport))
	return Promise{Holds: row.Holds, ForgottenUntil: row.ForgottenUntil}, err
}

// ForgottenUntil returns until when a consumer may have forgotten what it has seen, by the time of the first arrival; zero: nothing was ever
// forgotten. Ask in the transaction of the claim, behind it.
func ForgottenUntil(ctx context.Context, tx pgx.Tx, consumer string) (time.Time, error) {
	return contract.InboxMemory(ctx, tx, consumer)
}

// longestReport is what pawl_v1.consumer_report takes; [pawl.Forever] is more.
const longestReport = 3650 * 24 * time.Hour

// A PurgeBatch says what one call of [Purge] or [PurgeKept] may forget.
type PurgeBatch struct {
	Consumer  string
	OlderThan time.Duration // since the first arrival
	Limit     int           // 1 to 10,000
	Since     string        // Purged.Next of the call before; "" at first: what it has passed over is not looked at again

	// Unreported allows an OlderThan below 14 days to [Purge] if the consumer never reported for how long it must remember (see [Report]).
	// [PurgeKept] does not look at it.
	Unreported bool
}

// Purged is what a call has forgotten.
type Purged struct {
	Rows int
	Next string
}

// Purge forgets deliveries of a consumer by age. What a job still owns stays. Call it again until it forgets less than its limit. A
// claim of the very key waits for the end of one call, so keep the limit at about 1,000, and every call a transaction of its own.
//
// Errors: [pawl.ErrArgumentInvalid] for an age below what [Report] has said, or below 14 days if it has said nothing.
func Purge(ctx context.Context, db pawl.DB, b PurgeBatch) (Purged, error) {
	return purged(contract.InboxPurge(ctx, db, contract.PurgeArgs(b)))
}

func purged(row contract.PurgeRow, err error) (Purged, error) {
	return Purged{Rows: row.Purged, Next: row.Next}, err
}

// Estimate says about how many deliveries of all consumers are remembered, from the planner's statistics.
func Estimate(ctx context.Context, db pawl.DB) (rows int64, err error) {
	err = db.QueryRow(ctx, "select greatest(c.reltuples, 0)::bigint from pg_catalog.pg_class as c where c.oid operator(pg_catalog.=) 'pawl.inbox'::pg_catalog.regclass").Scan(&rows)
	return rows, err
}

// LastDeath says when a process that worked on a queue last died, by the clock of the database; nil if none is known to have. A
// process that has been silent for 3 s may be dead: then the answer is now.
func LastDeath(ctx context.Context, db pawl.DB, queue string) (*time.Time, error) {
	return contract.QueueDeath(ctx, db, queue)
}

// Open counts the stored deliveries of a consumer that are not done, and stops at the limit. Dead letters are done, and what is held at a
// sequence gate is not counted.
func Open(ctx context.Context, db pawl.DB, consumer, queue string, limit int) (int, error) {
	return catalog.OpenDeliveries(ctx, db, consumer, queue, limit)
}
