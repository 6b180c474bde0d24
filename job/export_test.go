package job

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl/internal/contract"
)

// AbandonAfter shortens the patience with handlers that ignore their context.
func (w *Worker) AbandonAfter(d time.Duration) { w.abandon = d }

// What the keepers are tested with: one alone, and when it is due.

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

// FinishTogether ends attempts whose handlers are done at the same time, and returns what became of
// each.
func FinishTogether(pool *pgxpool.Pool, jobs ...Job) (outcomes []string) {
	for _, e := range newFinishBatcher(pool, newLanePromoter(pool, func(string) {})).finish(jobs) {
		outcomes = append(outcomes, e.outcome)
	}
	return outcomes
}

// QueueNames returns the queues that the worker works on.
func (w *Worker) QueueNames() []string { return w.queues() }

// Measure reads the levels that a worker adds once a minute.
func (w *Worker) Measure(ctx context.Context) (contract.Rollup, error) { return w.measure(ctx) }
