package job

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/callback"
	"github.com/pawl-go/pawl/internal/catalog"
	"github.com/pawl-go/pawl/internal/conns"
	"github.com/pawl-go/pawl/internal/contract"
	"github.com/pawl-go/pawl/internal/progress"
	"github.com/pawl-go/pawl/internal/solo"
)

// A producer claims jobs of one queue for free slots.
type producer struct {
	w        *Worker
	queue    Queue
	capacity *capacity // one slot for each job
	kick     chan struct{}
	idleness idleness
	mark     watermark
	loop     *progress.Loop // nil without a liveness check
	ahead    atomic.Bool    // an exchange runs in the background
}

const (
	// briefPoll is the pause after the first empty claim. It doubles up to Poll. A busy queue that
	// is empty for a moment must not wait for a whole Poll.
	briefPoll = 10 * time.Millisecond
	// gatherFor bounds the wait, before a claim, until half of the slots are free. A claim costs
	// about the same for one job as for many, and slow handlers free one slot at a time.
	gatherFor = 5 * time.Millisecond
	// A slow pass gets 1/slowShare of the slots. A queue with fewer slots gives it none.
	slowShare = 8
	// An exchange that ends 1/aheadShare of the slots, and at least aheadLeast jobs, runs in the
	// background. Meanwhile the producer gathers the next one.
	aheadShare, aheadLeast = 4, 32
)

func newProducer(w *Worker, q Queue) *producer {
	p := &producer{w: w, queue: q, capacity: newCapacity(q.Concurrency), kick: make(chan struct{}, 1)}
	p.capacity.keeps = q.Admit == nil // with Admit a claim may wait, and ends must not
	return p
}

// work claims jobs for the free slots and starts them, until ctx ends. Only work fills slots,
// except for Process. Exchanges also end done simple jobs.
func (p *producer) work(ctx context.Context, s *session) {
	var beside sync.WaitGroup
	defer beside.Wait()
	defer p.busy()
	defer p.handOn()
	pause := briefPoll
	for {
		done, free, open := p.next(ctx)
		if !open {
			return
		}
		if free+len(done) == 0 {
			p.loop.Tick()
			if !p.rest(ctx, p.w.cfg.Poll, nil) {
				return
			}
			continue
		}
		due, later := solo.Process.Due()
		pass := p.beginPass()
		if share := min(free, p.queue.Concurrency/slowShare); pass.slow && share > 0 {
			slow := pass
			if len(done) > 0 {
				solo.Process.Leave(share) // start enters by itself
			}
			beside.Go(func() {
				started, _ := p.start(ctx, s, share, due, slow)
				p.idleness.beside.Add(int64(started))
			})
			if free -= share; free+len(done) == 0 {
				continue
			}
			pass = p.beginPass()
		}
		if len(done) >= max(aheadLeast, p.queue.Concurrency/aheadShare) && p.ahead.CompareAndSwap(false, true) {
			beside.Go(func() {
				defer p.ahead.Store(false)
				started, _ := p.exchange(ctx, s, done, free, due, pass)
				p.idleness.beside.Add(int64(started))
			})
			continue
		}
		started, open := p.ask(ctx, s, done, free, due, pass)
		if !open {
			return
		}
		if started == 0 {
			p.idle()
			if !p.rest(ctx, min(pause, p.w.cfg.Poll), later) {
				return
			}
		}
		if started += int(p.idleness.beside.Swap(0)); started > 0 {
			pause = briefPoll
			p.busy()
		} else {
			pause = p.longer(pause)
		}
	}
}

// beginPass returns the next pass, with the occasion for it.
func (p *producer) beginPass() pass {
	pass := p.mark.begin(time.Now())
	pass.occasion = p.idleness.occasion()
	return pass
}

// next waits for done attempts or free slots, and takes them. If it returns done attempts, all are
// inside the isolator. Both are empty if Admit allows no job. It reports whether ctx is open.
func (p *producer) next(ctx context.Context) (done []*attempt, free int, open bool) {
	for {
		p.capacity.gather(ctx, p.queue.Concurrency/2, gatherFor)
		done, free = p.capacity.takeDone(ctx, maxBatch)
		if free+len(done) == 0 {
			return nil, 0, false
		}
		// The reply to an exchange names jobs, not attempts, so a job must not be in it twice. Its
		// claim may wait at the isolator, but ends must not wait.
		twice := distinct(len(done), func(i int) int64 { return done[i].jobs[0].ID }) < len(done)
		if len(done) > 0 && (twice || !solo.Process.TryEnter(free+len(done))) {
			p.w.finishBatcher.take(done...)
			if done = nil; free == 0 {
				continue
			}
		}
		return done, p.admitted(ctx, free), true
	}
}

// ask claims for the free slots and ends the done attempts. For its results see exchange.
func (p *producer) ask(ctx context.Context, s *session, done []*attempt, free int, due bool, pass pass) (started int, open bool) {
	if len(done) > 0 {
		return p.exchange(ctx, s, done, free, due, pass)
	}
	return p.start(ctx, s, free, due, pass)
}

// handOn passes the done attempts to the finishBatcher.
func (p *producer) handOn() {
	if done := p.capacity.rest(); len(done) > 0 {
		p.w.finishBatcher.take(done...)
	}
}

// overdue is how long a job must be due before a producer that makes no progress counts as stuck.
const overdue = time.Second

// due reports whether the queue has an overdue job that the producer could have claimed.
func (p *producer) due(ctx context.Context, db DB) (bool, error) {
	return catalog.JobsDue(ctx, db, catalog.DueJobs{Queue: p.queue.Name, Kinds: p.w.kinds, For: overdue})
}

// admitted returns how many slots Admit allows, none if it panics, and gives the others back.
func (p *producer) admitted(ctx context.Context, taken int) int {
	if p.queue.Admit == nil {
		return taken
	}
	admitted, err := callback.Get("Queue.Admit", p.queue.Admit)
	if err != nil {
		p.w.emit(ctx, pawl.Event{Kind: pawl.EventError, Op: "job.claim", Scope: p.queue.Name, Err: err})
	}
	most := min(taken, max(0, admitted))
	p.capacity.give(taken - most)
	return most
}

// start claims and starts up to free jobs, for slots that are taken, and reports whether the
// producer may continue. It claims suspects only if due.
func (p *producer) start(ctx context.Context, s *session, free int, due bool, pass pass) (started int, open bool) {
	jobs, err := p.claim(ctx, s, free, due, pass)
	if err == nil {
		p.loop.Tick()
	}
	p.capacity.give(free - len(jobs))
	p.found(ctx, pass.occasion, len(jobs))
	p.launch(s, p.attempts(s, jobs)...)
	return len(jobs), err == nil || p.w.claimFailed(ctx, s, err)
}

// claim takes up to limit due jobs. It enters the process's isolator before it claims: see package
// solo. Every claim acquires in this order, and never waits for one while holding a later one:
// slot, isolator, claim, connection of the handler.
func (p *producer) claim(ctx context.Context, s *session, limit int, suspects bool, pass pass) (jobs []Job, err error) {
	var rows []contract.JobClaimRow
	defer func() { p.mark.end(pass, rows, time.Now()) }()
	if !solo.Process.TryEnter(limit) {
		p.handOn() // a suspect may wait until these attempts leave
		if err := solo.Process.Enter(ctx, limit); err != nil {
			return nil, err
		}
	}
	defer func() { solo.Process.Leave(limit - len(rows)) }()
	conn, err := conns.Acquire(ctx, p.w.pool)
	if err != nil {
		return nil, pawl.Wrap("job.claim", err)
	}
	defer conn.Release()
	pass.began = time.Now()
	rows, err = contract.JobClaim(ctx, conn, p.queue.Name, s.id, limit, p.w.kinds, suspects, pass.since)
	return byID(rows), err
}

// launch starts attempts for which slots were taken.
func (p *producer) launch(s *session, all ...*attempt) {
	s.inFlight.add(all)
	for _, a := range all {
		go a.execute()
	}
}

// attemptsAtOnce is the size of a block of attempts. A long attempt keeps its block in memory.
const attemptsAtOnce = 64

// attempts groups claimed jobs into attempts: a batch of one kind, or one job.
func (p *producer) attempts(s *session, jobs []Job) []*attempt {
	all := make([]*attempt, 0, len(jobs))
	var block []attempt
	var open map[*settings]*attempt // the unfilled batch
	for i := range jobs {
		h := p.w.handlers[jobs[i].Kind]
		batched := (h.form == transactionalMany || h.form == many) && jobs[i].Crashes == 0 && p.w.losses.Count(jobs[i].ID) == 0
		if a := open[h]; batched && a != nil && len(a.jobs) < h.policy.BatchSize {
			a.jobs = append(a.jobs, jobs[i])
			continue
		}
		if len(block) == cap(block) {
			block = make([]attempt, 0, min(len(jobs)-i, attemptsAtOnce))
		}
		block = block[:len(block)+1]
		a := &block[len(block)-1]
		a.Context, a.cancel = context.WithCancelCause(s.ctx)
		a.w, a.producer, a.loop, a.s, a.h, a.jobs = p.w, p, p.loop, s, h, jobs[i:i+1:i+1]
		all = append(all, a)
		if batched {
			if open == nil {
				open = map[*settings]*attempt{}
			}
			open[h] = a
		}
	}
	return all
}

// kickNow ends the producer's pause.
func (p *producer) kickNow() {
	select {
	case p.kick <- struct{}{}:
	default:
	}
}

// rest waits for d, a kick or a suspect's turn, and reports whether ctx is open.
func (p *producer) rest(ctx context.Context, d time.Duration, suspects <-chan struct{}) bool {
	p.handOn()
	select {
	case <-ctx.Done():
		return false
	case <-p.kick:
	case <-suspects:
	case <-time.After(d):
	}
	return ctx.Err() == nil
}
