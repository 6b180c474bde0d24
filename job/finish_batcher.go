package job

import (
	"context"
	"sync"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/contract"
)

// A finishBatcher ends simple jobs in batches. Jobs that arrive during a call form the next one.
type finishBatcher struct {
	pool     *pgxpool.Pool
	promoter *lanePromoter
	mu       sync.Mutex
	waiting  []*jobEnd
	busy     bool
}

// A jobEnd is a job whose handler has returned. Either of is set, or a finish waits for all.
type jobEnd struct {
	job     *Job
	outcome string // "finished", "stale" or "locked"; "" after an error
	err     error
	of      *attempt
	all     *sync.WaitGroup // the ends of one call of finish
}

func newFinishBatcher(pool *pgxpool.Pool, p *lanePromoter) *finishBatcher {
	return &finishBatcher{pool: pool, promoter: p}
}

// take ends the jobs of attempts, and the attempts when that has succeeded.
func (f *finishBatcher) take(all ...*attempt) {
	ends := make([]*jobEnd, len(all))
	for i, a := range all {
		a.ending = jobEnd{job: &a.jobs[0], of: a}
		ends[i] = &a.ending
	}
	f.add(ends...)
}

// finish ends jobs and returns the outcome of each.
func (f *finishBatcher) finish(jobs []Job) (ends []*jobEnd) {
	var all sync.WaitGroup
	all.Add(len(jobs))
	for i := range jobs {
		ends = append(ends, &jobEnd{job: &jobs[i], all: &all})
	}
	f.add(ends...)
	all.Wait()
	return ends
}

func (f *finishBatcher) add(ends ...*jobEnd) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.waiting = append(f.waiting, ends...)
	if !f.busy {
		f.busy = true
		go f.flushAll()
	}
}

func (f *finishBatcher) flushAll() {
	for {
		f.mu.Lock()
		n := together(f.waiting)
		now := f.waiting[:n:n]
		f.waiting = f.waiting[n:]
		f.busy = n > 0
		f.mu.Unlock()
		if n == 0 {
			return
		}
		f.flush(now)
	}
}

// together returns how many of the first ends go into one call. The reply names jobs, not attempts,
// and a process that stalled past its lease may end two attempts of one job.
func together(all []*jobEnd) int {
	all = all[:min(len(all), maxBatch)]
	return distinct(len(all), func(i int) int64 { return all[i].job.ID })
}

// distinct returns how many of the first n ids come before the first duplicate.
func distinct(n int, id func(int) int64) int {
	if n < 2 {
		return n
	}
	seen := make(map[int64]bool, n)
	for i := range n {
		if seen[id(i)] {
			return i
		}
		seen[id(i)] = true
	}
	return n
}

func (f *finishBatcher) flush(all []*jobEnd) {
	ctx, cancel := context.WithTimeout(context.Background(), statementLimit)
	defer cancel()
	held, byID := make([]contract.Holding, len(all)), make(map[int64]*jobEnd, len(all))
	for i, e := range all {
		held[i], byID[e.job.ID] = contract.Holding{ID: e.job.ID, Fence: e.job.Fence}, e
	}
	rows, err := contract.JobFinishMany(ctx, f.pool, held, true)
	for _, r := range rows {
		byID[r.ID].outcome = r.Outcome
		f.promoter.after("", r.Lanes)
	}
	var over []*attempt
	for _, e := range all {
		e.err = err
		switch {
		case e.of == nil:
			e.all.Done()
		case e.outcome == "finished":
			over = append(over, e.of)
		default:
			go e.of.finishAgain()
		}
	}
	if len(over) > 0 {
		go finishedAll(over) // in the background, because it calls hooks
	}
}

// finishedAll emits the events of attempts whose jobs have succeeded, and ends the attempts.
func finishedAll(all []*attempt) {
	defer endAll(all...)
	for _, a := range all {
		event := a.w.event(a.jobs, "job.finish", nil)
		event.Kind, event.Took = pawl.EventSucceeded, a.took
		a.w.emitAsIs(a.s.quiet, event)
	}
}

// finishAgain retries the end of an attempt's job after a first call did not record it.
func (a *attempt) finishAgain() {
	defer endAll(a)
	a.w.finishAgain(a.s, []*jobEnd{&a.ending}, a.took)
}
