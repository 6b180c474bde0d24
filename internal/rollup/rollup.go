// Package rollup tells the database now and then what a process has seen: counts of its events, for charts, and which of its attempts were refused,
// for stories.
package rollup

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/conns"
	"github.com/pawl-go/pawl/internal/contract"
	"github.com/pawl-go/pawl/internal/pace"
	"github.com/pawl-go/pawl/internal/txn"
)

const (
	addEvery = 20 * time.Second // on average three quarters of it
	addLimit = 2 * time.Second
	most     = 1000 // numbers a call, and refusals that wait for one
)

// Sources of numbers.
const (
	Queue    = "queue"
	Consumer = "consumer"
)

// silent are events that say nothing of the work, or come while there is none.
var silent = []pawl.EventKind{pawl.EventWoken, pawl.EventPolled, pawl.EventEmptyReceive, pawl.EventError}

// A Recorder counts events by scope and kind until they are added to the database. All of its methods may be called at once.
type Recorder struct {
	source string
	pool   *pgxpool.Pool

	mu      sync.Mutex
	counts  map[entry]int64
	refused []contract.StaleWrite
}

type entry struct {
	scope string
	kind  pawl.EventKind
}

// New returns a recorder of events whose scopes are queues or consumers.
func New(pool *pgxpool.Pool, source string) *Recorder {
	return &Recorder{source: source, pool: pool, counts: map[entry]int64{}}
}

// Count counts an event, as often as it stands for. A nil recorder counts nothing.
func (r *Recorder) Count(e pawl.Event) {
	if r == nil || slices.Contains(silent, e.Kind) {
		return
	}
	r.mu.Lock()
	r.counts[entry{e.Scope, e.Kind}] += int64(max(e.Count, 1))
	r.mu.Unlock()
}

// Refused notes an attempt at a job that was refused as stale. Beyond a thousand that wait to be recorded there is no room.
func (r *Recorder) Refused(w contract.StaleWrite) {
	if r == nil {
		return
	}
	r.mu.Lock()
	if len(r.refused) < most {
		r.refused = append(r.refused, w)
	}
	r.mu.Unlock()
}

// Keep adds what was counted every 15 seconds or so, until ctx ends. If the database asks for levels, measure is called. Errors go to onError.
func (r *Recorder) Keep(ctx context.Context, measure func(context.Context) (contract.Rollup, error), onError func(error)) {
	for pace.Sleep(ctx, pace.Jittered(addEvery)) {
		if err := r.Add(ctx, measure); err != nil && ctx.Err() == nil {
			onError(err)
		}
	}
}

// Add adds what was counted now. What the database has refused, or what found no connection, is kept for the next time; what it has not answered is given up, so that
// nothing is counted twice. measure may be nil.
func (r *Recorder) Add(ctx context.Context, measure func(context.Context) (contract.Rollup, error)) error {
	ctx, cancel := context.WithTimeout(ctx, addLimit)
	defer cancel()
	return errors.Join(r.record(ctx), r.addAll(ctx, measure))
}

// record records the refusals. To record one twice is no error, so they wait for the next time whatever went wrong.
func (r *Recorder) record(ctx context.Context) error {
	r.mu.Lock()
	all := r.refused
	r.refused = nil
	r.mu.Unlock()
	if len(all) == 0 {
		return nil
	}
	err := contract.StaleWriteAdd(ctx, r.pool, "job", all...)
	if err != nil {
		for _, w := range all {
			r.Refused(w)
		}
	}
	return err
}

func (r *Recorder) addAll(ctx context.Context, measure func(context.Context) (contract.Rollup, error)) error {
	sample, err := r.add(ctx, measure != nil)
	if err != nil || !sample || measure == nil {
		return err
	}
	levels, err := measure(ctx)
	if err == nil && len(levels.Names) > 0 {
		_, err = contract.RollupAdd(ctx, r.pool, r.source, levels, true)
	}
	return err
}

// add sends the counts. Without any it asks whether levels are wanted, if it may. While it waits for a connection, nothing is taken out: handlers may hold all of
// them, most of all when there is much to count.
func (r *Recorder) add(ctx context.Context, ask bool) (sample bool, err error) {
	if !ask && !r.counted() {
		return false, nil
	}
	conn, err := conns.Acquire(ctx, r.pool)
	if err != nil {
		return false, pawl.Wrap("rollup.add", err)
	}
	defer conn.Release()
	for {
		var some contract.Rollup
		taken := r.take(most)
		if len(taken) == 0 && !ask {
			return sample, nil
		}
		for e, n := range taken {
			some.Add(e.scope, string(e.kind), n)
		}
		sample, err = contract.RollupAdd(ctx, conn, r.source, some, false)
		if err != nil {
			if txn.Refused(err) {
				r.putBack(taken)
			}
			return false, err
		}
		if len(taken) < most {
			return sample, nil
		}
	}
}

// counted reports whether there is anything to add.
func (r *Recorder) counted() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.counts) > 0
}

// take takes up to limit counts out.
func (r *Recorder) take(limit int) map[entry]int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	taken := make(map[entry]int64, min(limit, len(r.counts)))
	for e, n := range r.counts {
		if len(taken) == limit {
			break
		}
		taken[e] = n
		delete(r.counts, e)
	}
	return taken
}

func (r *Recorder) putBack(taken map[entry]int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for e, n := range taken {
		r.counts[e] += n
	}
}
