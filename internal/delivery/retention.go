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
	Holds time.Duration // how long the consumer remembers deliveries; 0 is forever
	// deliveries that first arrived until then may be forgotten; zero: none was
	ForgottenUntil time.Time
}

// Report stores how long a consumer remembers its deliveries (0: forever) and how long after
// sending a message may be delivered (0: unknown). Call it at the start and once a minute. It
// returns the longest window that any program reported within the last ten minutes. [Purge] does
// not forget sooner.
func Report(ctx context.Context, db pawl.DB, consumer string, window, horizon time.Duration) (Promise, error) {
	row, err := contract.ConsumerReport(ctx, db, consumer, min(window, longestReport), min(horizon, longestReport))
	return Promise{Holds: row.Holds, ForgottenUntil: row.ForgottenUntil}, err
}

// ForgottenUntil returns the time of first arrival up to which a consumer may have forgotten
// deliveries. Zero means that none was forgotten. Call it after the claim, in the same transaction.
func ForgottenUntil(ctx context.Context, tx pgx.Tx, consumer string) (time.Time, error) {
	return contract.InboxMemory(ctx, tx, consumer)
}

// longestReport is the maximum for pawl_v1.consumer_report; [pawl.Forever] is longer.
const longestReport = 3650 * 24 * time.Hour

// A PurgeBatch bounds one call of [Purge] or [PurgeKept].
type PurgeBatch struct {
	Consumer  string
	OlderThan time.Duration // since the first arrival
	Limit     int           // 1 to 10,000
	// Purged.Next of the previous call, to skip the rows that it passed; "" at first
	Since string

	// Unreported allows [Purge] an OlderThan below 14 days although the consumer never reported how
	// long it must remember (see [Report]). [PurgeKept] ignores it.
	Unreported bool
}

// Purged is the result of one call.
type Purged struct {
	Rows int
	Next string
}

// Purge deletes deliveries of a consumer by age, except those that a job still owns. Call it again
// until it deletes fewer than Limit. A claim of a key being purged waits for the end of the call.
// So keep Limit at about 1,000, and run each call in a transaction of its own.
//
// Errors: [pawl.ErrArgumentInvalid] for an age below the reported one, or below 14 days if none was
// reported.
func Purge(ctx context.Context, db pawl.DB, b PurgeBatch) (Purged, error) {
	return purged(contract.InboxPurge(ctx, db, contract.PurgeArgs(b)))
}

func purged(row contract.PurgeRow, err error) (Purged, error) {
	return Purged{Rows: row.Purged, Next: row.Next}, err
}

// Estimate returns about how many deliveries of all consumers are remembered, from the planner's
// statistics.
func Estimate(ctx context.Context, db pawl.DB) (rows int64, err error) {
	err = db.QueryRow(ctx, "select greatest(c.reltuples, 0)::bigint from pg_catalog.pg_class as c where c.oid operator(pg_catalog.=) 'pawl.inbox'::pg_catalog.regclass").Scan(&rows)
	return rows, err
}

// LastDeath returns when a process that worked on a queue last died, by the database's clock, or
// nil. A process that has been silent for 3 s may be dead; then LastDeath returns the current time.
func LastDeath(ctx context.Context, db pawl.DB, queue string) (*time.Time, error) {
	return contract.QueueDeath(ctx, db, queue)
}

// NoteDeath makes LastDeath return a death of a process of the queue that still runs. A worker that
// registers and is silent stands for it: it counts as dead after 3 s, and the next sweep records
// that.
func NoteDeath(ctx context.Context, db contract.DB, queue string) error {
	_, err := contract.WorkerRegister(ctx, db, queue, time.Second, []string{queue})
	return err
}

// Open counts the stored deliveries of a consumer that are not done, up to limit. Dead letters
// count as done. Deliveries held at a sequence gate are not counted.
func Open(ctx context.Context, db pawl.DB, consumer, queue string, limit int) (int, error) {
	return catalog.OpenDeliveries(ctx, db, consumer, queue, limit)
}
