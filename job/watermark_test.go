package job_test

import (
	"context"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/job"
)

// A busy queue is claimed from a mark, under a snapshot that keeps every dead entry. A job becomes
// visible far behind the mark, as if its transaction had been open for half a minute. It is found
// although the queue never becomes empty. bench measures how soon: within a second.
func TestWatermark_StragglerIsFound(t *testing.T) {
	t.Parallel()
	c := setupCrew(t)
	pin, err := c.pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	c.must(err)
	defer func() { _ = pin.Rollback(context.Background()) }()
	_, err = pin.Exec(t.Context(), "select from pawl.job limit 1")
	c.must(err)
	c.handlers = []job.Handler{c.handlerOf("batch", func(job.Job) error { return nil })}

	stop := make(chan struct{})
	var load sync.WaitGroup
	load.Go(func() {
		many := make([]job.Request, 200)
		for i := range many {
			many[i] = job.Request{Queue: "q", Kind: "k"}
		}
		for {
			select {
			case <-stop:
				return
			default:
				if _, err := job.EnqueueMany(t.Context(), c.pool, many); err != nil {
					return
				}
			}
		}
	})
	defer func() { close(stop); load.Wait() }()
	c.hire()
	tx := c.begin()
	c.enqueueIn(tx, job.Request{Queue: "q", Kind: "k"})
	var late int64
	c.must(tx.QueryRow(t.Context(), "update pawl.job set available_at = available_at - interval '30 seconds' where xmin::text = pg_current_xact_id()::text returning id").Scan(&late))
	c.untilTrue("a few thousand jobs are done", func() bool {
		var n int
		c.must(c.pool.QueryRow(t.Context(), "select count(*) from effect").Scan(&n))
		return n > 5000
	})
	c.must(tx.Commit(t.Context()))
	c.untilTrue("the straggler is done", func() bool {
		var done bool
		c.must(c.pool.QueryRow(t.Context(), "select exists (select from effect where job = $1)", late).Scan(&done))
		return done
	})
}
