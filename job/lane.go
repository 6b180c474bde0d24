package job

import (
	"context"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/contract"
)

const (
	laneSweepEvery = time.Second
	lanePurgeEvery = time.Minute
	lanePage       = 10000 // lanes in each call
	lanesAtOnce    = time.Second
)

// A laneKeeper promotes the next job in lanes where jobs wait and none has the turn, because the
// process that should have promoted it died. It also deletes unused lanes. Every worker has one.
type laneKeeper struct {
	w            *Worker
	sweep, purge round
}

func (w *Worker) newLaneKeeper() *laneKeeper {
	return &laneKeeper{w: w,
		sweep: round{every: laneSweepEvery},
		purge: round{every: lanePurgeEvery, due: time.Now().Add(lanePurgeEvery)}}
}

func (k *laneKeeper) keep(ctx context.Context) {
	promoted := k.take(ctx, "lane.sweep", &k.sweep, contract.LaneSweep)
	if promoted > 0 {
		k.w.Kick()
	}
	k.take(ctx, "lane.purge", &k.purge, contract.LanePurge)
}

type lanePages = func(ctx context.Context, db contract.DB, after int64, limit int) (contract.LaneSweepRow, error)

func (k *laneKeeper) take(ctx context.Context, op string, r *round, pages lanePages) (count int) {
	count, err := r.take(func(after int64) (contract.LaneSweepRow, error) {
		limited, cancel := context.WithTimeout(ctx, statementLimit)
		defer cancel()
		return pages(limited, k.w.pool, after, lanePage)
	})
	if err != nil && ctx.Err() == nil {
		k.w.emit(ctx, pawl.Event{Kind: pawl.EventError, Op: op, Err: err})
	}
	return count
}

// A round visits all lanes page by page. The next round begins after every, or after 20 times the
// duration of the last if that is longer. So rounds take at most a twentieth of the time.
type round struct {
	every time.Duration
	due   time.Time
	after int64         // the last lane of the page before
	took  time.Duration // so far
}

// take reads pages for about a second. The next call continues from there.
func (r *round) take(page func(after int64) (contract.LaneSweepRow, error)) (count int, err error) {
	began := time.Now()
	if began.Before(r.due) {
		return 0, nil
	}
	for over := false; !over; over = time.Since(began) > lanesAtOnce {
		row, err := page(r.after)
		count += row.Count
		if err != nil {
			r.due = time.Now().Add(r.every)
			return count, err
		}
		if row.Next == nil {
			*r = round{every: r.every, due: time.Now().Add(max(r.every, 20*(r.took+time.Since(began))))}
			return count, nil
		}
		r.after = *row.Next
	}
	r.took += time.Since(began)
	return count, nil
}
