// Package rollup stores counts of a process's events in the database for charts. It also stores
// which attempts were rejected, for histories of a key.
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
	addEvery = 20 * time.Second // 15 s on average, with jitter
	addLimit = 2 * time.Second
	most     = 1000 // numbers a call, and rejections that wait for one
)

// Sources of numbers.
const (
	Queue    = "queue"
	Consumer = "consumer"
)

// silent lists events that say nothing about work, or that occur while there is none.
var silent = []pawl.EventKind{pawl.EventWoken, pawl.EventPolled, pawl.EventEmptyReceive, pawl.EventError}

// A Recorder counts events by scope and kind until it adds them to the database. Its methods are
// safe for concurrent use.
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

// New returns a recorder of events whose scopes are queues or consumers, as source says.
func New(pool *pgxpool.Pool, source string) *Recorder {
	return &Recorder{source: source, pool: pool, counts: map[entry]int64{}}
}

// Count counts an event, e.Count times. A nil recorder counts nothing.
func (r *Recorder) Count(e pawl.Event) {
	if r == nil || slices.Contains(silent, e.Kind) {
		return
	}
	r.mu.Lock()
	r.counts[entry{e.Scope, e.Kind}] += int64(max(e.Count, 1))
	r.mu.Unlock()
}

// Refused records an attempt at a job that was rejected as stale. If a thousand wait to be stored,
// further ones are dropped.
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

// Keep adds the counts about every 15 seconds until ctx ends. If the database asks for levels, Keep
// calls measure. Errors go to onError.
func (r *Recorder) Keep(ctx context.Context, measure func(context.Context) (contract.Rollup, error), onError func(error)) {
	for pace.Sleep(ctx, pace.Jittered(addEvery)) {
		if err := r.Add(ctx, measure); err != nil && ctx.Err() == nil {
			onError(err)
		}
	}
}

// Add adds the counts now. Counts that the database refused, or for which there was no connection,
// are kept for the next call. If the database did not answer, they are dropped, so that nothing is
// counted twice. measure may be nil.
func (r *Recorder) Add(ctx context.Context, measure func(context.Context) (contract.Rollup, error)) error {
	ctx, cancel := context.WithTimeout(ctx, addLimit)
	defer cancel()
	return errors.Join(r.record(ctx), r.addAll(ctx, measure))
}

// record stores the rejections. Storing one twice does no harm, so after any error they are kept
// for the next call.
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

// add sends the counts. If ask is true, it also asks whether levels are wanted, even without
// counts. It takes the counts out only after it got a connection: handlers may hold all of them,
// most of all when there is much to count.
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

// counted reports whether there are counts to add.
func (r *Recorder) counted() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.counts) > 0
}

// take removes and returns up to limit counts.
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
