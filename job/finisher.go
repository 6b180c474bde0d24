package job

import (
	"context"
	"sync"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl/internal/contract"
)

// A finisher ends simple jobs in batches: those that come while one batch is on its way form the next.
type finisher struct {
	pool     *pgxpool.Pool
	promoter *promoter
	mu       sync.Mutex
	waiting  []*ending
	busy     bool
}

type ending struct {
	job     Job
	outcome string // "finished", "stale" or "locked"; "" with err
	err     error
	done    *sync.WaitGroup // of all that were handed over together
}

func newFinisher(pool *pgxpool.Pool, p *promoter) *finisher {
	return &finisher{pool: pool, promoter: p}
}

// finish returns what became of each job.
func (f *finisher) finish(jobs []Job) (ends []*ending) {
	var done sync.WaitGroup
	done.Add(len(jobs))
	for _, j := range jobs {
		ends = append(ends, &ending{job: j, done: &done})
	}
	f.mu.Lock()
	f.waiting = append(f.waiting, ends...)
	if !f.busy {
		f.busy = true
		go f.flushAll()
	}
	f.mu.Unlock()
	done.Wait()
	return ends
}

func (f *finisher) flushAll() {
	for {
		f.mu.Lock()
		n := min(len(f.waiting), maxBatch)
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

func (f *finisher) flush(all []*ending) {
	ctx, cancel := context.WithTimeout(context.Background(), settleLimit)
	defer cancel()
	jobs, byID := make([]Job, len(all)), make(map[int64]*ending, len(all))
	for i, e := range all {
		jobs[i], byID[e.job.ID] = e.job, e
	}
	rows, err := contract.JobFinishMany(ctx, f.pool, holdings(jobs), true)
	for _, r := range rows {
		byID[r.ID].outcome = r.Outcome
		f.promoter.after("", r.Lanes)
	}
	for _, e := range all {
		e.err = err
		e.done.Done()
	}
}
