package job

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/catalog"
	"github.com/pawl-go/pawl/internal/contract"
)

// emitAsIs passes an event to the hooks, counts it for the charts, and records a rejected write for
// explain. [Worker.emit] adds a scope to an event that has none.
func (w *Worker) emitAsIs(ctx context.Context, e pawl.Event) {
	w.counted.Count(e)
	if e.Kind == pawl.EventStaleWriteRefused && e.Fence != 0 {
		w.counted.Refused(contract.StaleWrite{Scope: e.Scope, Key: strconv.FormatInt(e.JobID, 10), Fence: e.Fence, Worker: w.cfg.Name})
	}
	w.cfg.Hooks.Emit(ctx, e)
}

// keepCounts adds the counts, and measures the queues if no other worker has done so.
func (w *Worker) keepCounts(ctx context.Context) {
	w.counted.Keep(ctx, w.measure, func(err error) {
		w.emit(ctx, pawl.Event{Kind: pawl.EventError, Op: "rollup.add", Err: err})
	})
}

// addCounts adds the last counts after the worker has stopped.
func (w *Worker) addCounts(ctx context.Context) {
	if err := w.counted.Add(context.WithoutCancel(ctx), nil); err != nil {
		w.emit(ctx, pawl.Event{Kind: pawl.EventError, Op: "rollup.add", Err: err})
	}
}

// measureLimit bounds each statement of measure.
const measureLimit = time.Second

// A standing holds the levels of one queue.
type standing struct {
	Name    string    `json:"name"`
	Due     int64     `json:"due"`
	Since   time.Time `json:"due_since"`
	Held    int64     `json:"processing"`
	Dead    int64     `json:"dead"`
	Unknown int64     `json:"unknown"`
	ReadAt  time.Time `json:"read_at"`
}

// measure reads the levels of all queues at a cost that does not grow with the number of jobs:
// counts stop at [catalog.GlanceLimit] + 1.
func (w *Worker) measure(ctx context.Context) (r contract.Rollup, err error) {
	err = pgx.BeginTxFunc(ctx, w.pool, pgx.TxOptions{AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, fmt.Sprintf("set local statement_timeout = %d", measureLimit.Milliseconds())); err != nil {
			return pawl.Wrap("rollup.measure", err)
		}
		queues, err := catalog.Glance[standing](ctx, tx)
		if err != nil {
			return err
		}
		workers, err := catalog.Workers[struct {
			State string `json:"state"`
		}](ctx, tx)
		if err != nil {
			return err
		}
		alive := int64(0)
		for _, w := range workers {
			if w.State == "alive" {
				alive++
			}
		}
		r.Add("", "workers", alive)
		r.Add("", "workers_silent", int64(len(workers))-alive)
		addStandings(&r, queues)
		return nil
	})
	return r, err
}

// manyQueues is how many queues have levels by name: those most in need of attention.
const manyQueues = 50

// addStandings adds the sum of all queues' levels, and the levels of single queues that are not 0.
// If queues with levels are left out, it adds their number.
func addStandings(r *contract.Rollup, queues []standing) {
	var all standing
	var oldest time.Duration
	for _, q := range queues {
		all.Due, all.Held, all.Dead, all.Unknown = all.Due+q.Due, all.Held+q.Held, all.Dead+q.Dead, all.Unknown+q.Unknown
		oldest = max(oldest, q.waits())
	}
	r.Add("", "due", all.Due)
	r.Add("", "oldest_due_ms", oldest.Milliseconds())
	r.Add("", "processing", all.Held)
	r.Add("", "dead_letters", all.Dead)
	r.Add("", "unknown", all.Unknown)
	slices.SortStableFunc(queues, func(a, b standing) int {
		return cmp.Or(cmp.Compare(b.Dead+b.Unknown, a.Dead+a.Unknown), cmp.Compare(b.waits(), a.waits()))
	})
	left := int64(0)
	for _, q := range queues[min(len(queues), manyQueues):] {
		if q.Due+q.Held+q.Dead+q.Unknown > 0 {
			left++
		}
	}
	if left > 0 {
		r.Add("", "queues_left_out", left)
	}
	for _, q := range queues[:min(len(queues), manyQueues)] {
		for name, value := range map[string]int64{"due": q.Due, "oldest_due_ms": q.waits().Milliseconds(), "processing": q.Held, "dead_letters": q.Dead, "unknown": q.Unknown} {
			if value > 0 {
				r.Add(q.Name, name, value)
			}
		}
	}
}

// waits returns how long the oldest due job has waited.
func (q standing) waits() time.Duration {
	if q.Since.IsZero() {
		return 0
	}
	return max(q.ReadAt.Sub(q.Since), 0)
}
