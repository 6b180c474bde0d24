package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// A claimTimer times calls of job_claim and job_exchange on traced connections, from the call to
// the last row of the response, which includes the commit. Calls that claim nothing do not count.
type claimTimer struct {
	mu    sync.Mutex
	on    bool
	times []float64 // ms
}

type (
	claimKey   struct{}
	claimBegan struct {
		at   time.Time
		rows int64 // of a response without a job
	}
)

func (*claimTimer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, q pgx.TraceQueryStartData) context.Context {
	switch {
	case strings.Contains(q.SQL, "pawl_v1.job_exchange("):
		return context.WithValue(ctx, claimKey{}, claimBegan{time.Now(), 1})
	case strings.Contains(q.SQL, "pawl_v1.job_claim("):
		return context.WithValue(ctx, claimKey{}, claimBegan{time.Now(), 0})
	}
	return ctx
}

func (t *claimTimer) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, q pgx.TraceQueryEndData) {
	began, ok := ctx.Value(claimKey{}).(claimBegan)
	if !ok || q.Err != nil || q.CommandTag.RowsAffected() <= began.rows {
		return
	}
	took := float64(time.Since(began.at).Microseconds()) / 1000
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.on {
		t.times = append(t.times, took)
	}
}

func (t *claimTimer) record(on bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.on = on
}

// into stores the times in a round.
func (t *claimTimer) into(r *Round) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.times) == 0 {
		return errors.New("no claim was timed: ask for more jobs")
	}
	r.Value, r.P99, r.Count = median(t.times), quantile(t.times, 0.99), len(t.times)
	return nil
}

// timed makes the workers of the bed use a separate pool with timed claims.
func (b *bed) timed(ctx context.Context) (t *claimTimer, done func(), err error) {
	config, err := pgxpool.ParseConfig(b.url)
	if err != nil {
		return nil, nil, err
	}
	t = &claimTimer{}
	config.MaxConns, config.ConnConfig.Tracer = poolConns, t
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, nil, err
	}
	b.contender = &pawlQueue{pool: pool}
	return t, pool.Close, nil
}

// waitingClaims measures the claims of one process while it drains n waiting jobs.
func waitingClaims(n int) measure {
	return func(ctx context.Context, b *bed, s scale) (r Round, err error) {
		timer, done, err := b.timed(ctx)
		if err != nil {
			return r, err
		}
		defer done()
		timer.record(true)
		drained, err := b.drainWaiting(ctx, noop, n, s)
		if err != nil {
			return r, err
		}
		r.Said = fmt.Sprintf("%s of %s jobs done at %s jobs/s", number(float64(drained.Count)), number(float64(n)), number(drained.Value))
		return r, timer.into(&r)
	}
}

// enqueueBeside measures enqueueing by 16 callers beside n waiting jobs.
func enqueueBeside(n int) measure {
	return func(ctx context.Context, b *bed, s scale) (Round, error) {
		r, err := enqueueSingle(16)(ctx, b, s)
		if err != nil {
			return r, err
		}
		all, err := b.waiting(ctx)
		if err == nil && all != n+r.Count+1 { // one was enqueued before the clock started
			err = fmt.Errorf("%d jobs wait: %d did before, %d were enqueued", all, n, r.Count+1)
		}
		return r, err
	}
}

func (g growthSizes) jobPlans() []plan {
	const label = "waiting jobs"
	const how = "; enqueued by EnqueueMany, vacuumed"
	return []plan{
		growthRow(Row{ID: "growth-jobs", Title: "Jobs that do nothing, of many that wait: claim to finish, one process", Unit: perSec, XLabel: label}, growthRounds, g.jobs,
			func(n int) entry {
				return entry{grown(n, "jobs", "Handle"+how), jobsWaiting(n), func(ctx context.Context, b *bed, s scale) (Round, error) {
					return b.drainWaiting(ctx, noop, n, s)
				}}
			}),
		growthRow(Row{ID: "growth-jobs-claim", Title: "A claim of up to 500 jobs while many wait, saturated", Unit: ms, Less: true, XLabel: label}, waitRounds, g.jobs,
			func(n int) entry {
				return entry{grown(n, "jobs", "job_exchange and job_claim, as the worker calls them"+how), jobsWaiting(n), waitingClaims(n)}
			}),
		growthRow(Row{ID: "growth-jobs-enqueue", Title: "Enqueue, one job a call, 16 callers, while many wait", Unit: perSec, XLabel: label}, growthRounds, g.jobs,
			func(n int) entry {
				return entry{grown(n, "jobs", "Enqueue"+how), jobsWaiting(n), enqueueBeside(n)}
			}),
	}
}
