package job_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl/internal/testbed/jobtest"
	"github.com/pawl-go/pawl/internal/testbed/patience"
	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/pawltest"
)

// A bed is a database with one registered worker, driven step by step.
type bed struct {
	*testing.T
	pool   *pgxpool.Pool
	worker int64
}

func setup(t *testing.T) *bed {
	t.Helper()
	b := &bed{T: t, pool: pawltest.DB(t)}
	b.register()
	return b
}

func (b *bed) register() {
	b.Helper()
	err := b.pool.QueryRow(b.Context(), "select r.worker_id from pawl_v1.worker_register('test') as r").Scan(&b.worker)
	b.must(err)
}

func (b *bed) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

func (b *bed) exec(statement string) {
	b.Helper()
	_, err := b.pool.Exec(b.Context(), statement)
	b.must(err)
}

func (b *bed) begin() pgx.Tx {
	b.Helper()
	tx, err := b.pool.Begin(b.Context())
	b.must(err)
	b.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	return tx
}

func (b *bed) enqueue(r job.Request) job.Enqueued {
	b.Helper()
	e, err := job.Enqueue(b.Context(), b.pool, r)
	b.must(err)
	return e
}

func (b *bed) enqueueIn(tx pgx.Tx, r job.Request) {
	b.Helper()
	_, err := job.Enqueue(b.Context(), tx, r)
	b.must(err)
}

func (b *bed) claimUpTo(limit int) []job.Job {
	b.Helper()
	jobs, err := jobtest.Claim(b.Context(), b.pool, "q", b.worker, limit)
	b.must(err)
	return jobs
}

func (b *bed) claim() job.Job {
	b.Helper()
	jobs := b.claimUpTo(1)
	if len(jobs) != 1 {
		b.Fatalf("claimed %d jobs, want 1", len(jobs))
	}
	return jobs[0]
}

func (b *bed) mustFinish(j job.Job) {
	b.Helper()
	b.must(pgx.BeginFunc(b.Context(), b.pool, func(tx pgx.Tx) error { return j.Finish(b.Context(), tx) }))
}

// dieAndSweep expires the worker's lease by moving its row, sweeps, and registers a successor.
func (b *bed) dieAndSweep(kinds ...string) {
	b.Helper()
	b.exec("update pawl.worker set seen_at = now() - lease * 2")
	b.sweep(kinds...)
	b.register()
}

func (b *bed) sweep(kinds ...string) {
	b.Helper()
	if kinds == nil {
		kinds = []string{"k"}
	}
	_, err := b.pool.Exec(b.Context(), "select pawl_v1.job_sweep($1)", kinds)
	b.must(err)
}

func (b *bed) count(query string) (n int) {
	b.Helper()
	b.must(b.pool.QueryRow(b.Context(), query).Scan(&n))
	return n
}

func (b *bed) wantCount(query string, want int) {
	b.Helper()
	if got := b.count(query); got != want {
		b.Errorf("%s: %d, want %d", query, got, want)
	}
}

func (b *bed) wantDetail(err error, want string) {
	b.Helper()
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || pg.Detail != want {
		b.Errorf("got %v, want detail %q", err, want)
	}
}

// until polls a count until it is reached.
func (b *bed) until(otherwise, query string, want int) {
	b.Helper()
	got := -1
	patience.Until(b, fmt.Sprintf("%d by %s (%s)", want, query, otherwise), func() bool {
		b.must(b.pool.QueryRow(b.Context(), query).Scan(&got))
		return got == want
	})
}
