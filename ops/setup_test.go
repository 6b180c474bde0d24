package ops_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/testbed/jobtest"
	"github.com/pawl-go/pawl/internal/testbed/patience"
	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/ops"
	"github.com/pawl-go/pawl/pawltest"
)

var (
	by  = ops.By{Actor: "ann", Reason: "the stock service is back"}
	ctx = context.Background()
)

// A bed is one database with one registered worker, driven step by step.
type bed struct {
	*testing.T
	pool   *pgxpool.Pool
	worker int64
}

func setup(t *testing.T) *bed {
	t.Helper()
	b := &bed{T: t, pool: pawltest.DB(t)}
	b.worker = one[int64](b, "select r.worker_id from pawl_v1.worker_register('test') as r")
	return b
}

func (b *bed) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

func (b *bed) exec(statement string, args ...any) {
	b.Helper()
	_, err := b.pool.Exec(b.Context(), statement, args...)
	b.must(err)
}

func (b *bed) begin() pgx.Tx {
	b.Helper()
	tx, err := b.pool.Begin(b.Context())
	b.must(err)
	b.Cleanup(func() { _ = tx.Rollback(ctx) })
	return tx
}

func (b *bed) enqueue() int64 {
	b.Helper()
	e, err := job.Enqueue(b.Context(), b.pool, job.Request{Queue: "q", Kind: "k", Payload: []byte("payload")})
	b.must(err)
	return e.ID
}

func (b *bed) claim() job.Job {
	b.Helper()
	jobs, err := jobtest.Claim(b.Context(), b.pool, "q", b.worker, 1)
	b.must(err)
	if len(jobs) != 1 {
		b.Fatalf("claimed %d jobs, want 1", len(jobs))
	}
	return jobs[0]
}

// in creates a job with a history and puts it into a status.
func (b *bed) in(status ops.Status) int64 {
	b.Helper()
	id := b.enqueue()
	b.exec(`update pawl.job as j
   set status = $2::text, attempts = 3, crashes = 2, fence = 5, available_at = clock_timestamp() + interval '1 hour',
       claimed_by = case when $2::text = 'processing' then $3::bigint end,
       lane_id = case when $2::text = 'waiting' then 1 end, position = case when $2::text = 'waiting' then j.id end,
       last_errors = '[{"at": "2026-01-01T00:00:00Z", "attempt": 3, "code": null, "error": "boom"}]'
 where j.id = $1`, id, string(status), b.worker)
	return id
}

// do runs a verb and expects an outcome.
func (b *bed) do(v verb, id int64, want ops.Outcome) ops.Result {
	b.Helper()
	r, err := v(ops.JobRef{ID: id}, b.Context(), b.pool, by)
	b.must(err)
	if r.Outcome != want || r.Changed() != (r.Hint == "") {
		b.Fatalf("job %d: %+v, want %s", id, r, want)
	}
	return r
}

type verb = func(r ops.JobRef, ctx context.Context, db pawl.DB, by ops.By) (ops.Result, error)

func (b *bed) wantCount(query string, want int) {
	b.Helper()
	if got := one[int](b, query); got != want {
		b.Errorf("%s: %d, want %d", query, got, want)
	}
}

func (b *bed) wantFenced(err error, detail string) {
	b.Helper()
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || pg.Code != "P4020" || pg.Detail != detail {
		b.Errorf("got %v, want P4020 with detail %q", err, detail)
	}
}

// heartbeat returns the jobs that the worker must give up.
func (b *bed) heartbeat() []int64 {
	b.Helper()
	return one[[]int64](b, "select h.recalled from pawl_v1.worker_heartbeat($1) as h", b.worker)
}

// untilBlocked waits until the given number of sessions of this database wait for a lock.
func (b *bed) untilBlocked(want int) {
	b.Helper()
	patience.Blocked(b, b.pool, want, "%")
}

func one[T any](b *bed, query string, args ...any) T {
	b.Helper()
	var value T
	if err := b.pool.QueryRow(b.Context(), query, args...).Scan(&value); err != nil {
		b.Fatalf("%s: %v", query, err)
	}
	return value
}

func (b *bed) count(query string, args ...any) (n int) {
	b.Helper()
	b.must(b.pool.QueryRow(b.Context(), query, args...).Scan(&n))
	return n
}
