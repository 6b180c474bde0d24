package job

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl/internal/contract"
)

// AbandonAfter sets how long Run waits for handlers that ignore their context.
func (w *Worker) AbandonAfter(d time.Duration) { w.abandon = d }

// AwaitAttempts waits until the attempts that Run has abandoned have ended, too.
func (w *Worker) AwaitAttempts(ctx context.Context) { w.idle(ctx, time.Hour) }

// Tests run one keeper alone and set when it is due.

const (
	KeyPurgeEvery     = keyPurgeEvery
	ArchiveSweepEvery = archiveSweepEvery
)

func NewKeyKeeper(pool *pgxpool.Pool, cfg Config) (keep func(context.Context), due *time.Time) {
	k := (&Worker{pool: pool, cfg: cfg}).newKeyKeeper()
	return k.keep, &k.due
}

func NewArchiveKeeper(pool *pgxpool.Pool, cfg Config) (keep func(context.Context), due *time.Time) {
	k := (&Worker{pool: pool, cfg: cfg}).newArchiveKeeper()
	return k.keep, &k.due
}

// FinishTogether finishes jobs in one call and returns the outcome of each.
func FinishTogether(pool *pgxpool.Pool, jobs ...Job) (outcomes []string) {
	for _, e := range newFinishBatcher(pool, newLanePromoter(pool, func(string) {})).finish(jobs) {
		outcomes = append(outcomes, e.outcome)
	}
	return outcomes
}

// QueueNames returns the worker's queues.
func (w *Worker) QueueNames() []string { return w.queues() }

// Measure reads the levels that a worker adds each minute.
func (w *Worker) Measure(ctx context.Context) (contract.Rollup, error) { return w.measure(ctx) }
