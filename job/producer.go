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

// A producer works on one queue: as many jobs in hand as it has slots.
type producer struct {
	w        *Worker
	queue    Queue
	capacity *capacity // one a job in hand
	kick     chan struct{}
	idleness idleness
	mark     watermark
	loop     *progress.Loop // nil unless somebody looks
	ahead    atomic.Bool    // an exchange is on its way beside the producer
}

const (
	// briefPoll is the pause after the first empty claim since the queue had jobs. It doubles up to Poll: a queue that is
	// busy but not full must not wait for a whole Poll whenever it is found empty.
	briefPoll = 10 * time.Millisecond
	// gatherFor bounds the wait, before a claim, until half of the slots are free: a claim costs about the same for one
	// job as for many, and handlers that take their time leave one slot at a time.
	gatherFor = 5 * time.Millisecond
	// slowShare of the slots, and no line with fewer, are left to a slow pass.
	slowShare = 8
	// The producer does not wait for an exchange that ends one of aheadShare slots, and at least aheadLeast: it gathers the next one while the server
	// works on this one.
	aheadShare, aheadLeast = 4, 32
)

func newProducer(w *Worker, q Queue) *producer {
	l := &producer{w: w, queue: q, capacity: newCapacity(q.Concurrency), kick: make(chan struct{}, 1)}
	l.capacity.keeps = q.Admit == nil // else a claim may have to wait, and ends do not wait for it
	return l
}

// work claims as many jobs as there are free slots and starts them, until ctx ends. Only it fills slots, but for the
// odd job that is claimed by its id. The ends of simple jobs go along.
func (l *producer) work(ctx context.Context, s *session) {
	var beside sync.WaitGroup
	defer beside.Wait()
	defer l.busy()
	defer l.handOn()
	pause := briefPoll
	for {
		done, free, open := l.next(ctx)
		if !open {
			return
		}
		if free+len(done) == 0 {
			l.loop.Tick()
			if !l.rest(ctx, l.w.cfg.Poll, nil) {
				return
			}
			continue
		}
		due, later := solo.Process.Due()
		p := l.mark.begin(time.Now())
		if share := min(free, l.queue.Concurrency/slowShare); p.slow && share > 0 {
			slow := p
			if len(done) > 0 {
				solo.Process.Leave(share) // it enters by itself
			}
			beside.Go(func() {
				started, _ := l.start(ctx, s, share, due, slow)
				l.idleness.beside.Add(int64(started))
			})
			if free -= share; free+len(done) == 0 {
				continue
			}
			p = l.mark.begin(time.Now())
		}
		if len(done) >= max(aheadLeast, l.queue.Concurrency/aheadShare) && l.ahead.CompareAndSwap(false, true) {
			beside.Go(func() {
				defer l.ahead.Store(false)
				started, _ := l.exchange(ctx, s, done, free, due, p)
				l.idleness.beside.Add(int64(started))
			})
			continue
		}
		started, open := l.ask(ctx, s, done, free, due, p)
		if !open {
			return
		}
		if started == 0 {
			l.idle()
			if !l.rest(ctx, min(pause, l.w.cfg.Poll), later) {
				return
			}
		}
		if started += int(l.idleness.beside.Swap(0)); started > 0 {
			pause = briefPoll
			l.found(ctx, started)
		} else {
			pause = l.longer(pause)
		}
	}
}

// next waits until there is something to ask for, and takes it: attempts whose jobs are done, which are inside the process's gate then together
// with the free slots, and slots. Both are empty if the queue admits nothing now. It reports whether ctx is still open.
func (l *producer) next(ctx context.Context) (done []*attempt, free int, open bool) {
	for {
		l.capacity.gather(ctx, l.queue.Concurrency/2, gatherFor)
		done, free = l.capacity.takeDone(ctx, maxBatch)
		if free+len(done) == 0 {
			return nil, 0, false
		}
		// The answer to an exchange names jobs, not attempts. And its claim may wait, while ends must
		// not.
		twice := distinct(len(done), func(i int) int64 { return done[i].jobs[0].ID }) < len(done)
		if len(done) > 0 && (twice || !solo.Process.TryEnter(free+len(done))) {
			l.w.finisher.take(done...)
			if done = nil; free == 0 {
				continue
			}
		}
		return done, l.admitted(ctx, free), true
	}
}

// ask claims for the free slots, and ends what is done on the way. It reports how many jobs it started, and whether the producer may go on.
func (l *producer) ask(ctx context.Context, s *session, done []*attempt, free int, due bool, p pass) (started int, open bool) {
	if len(done) > 0 {
		return l.exchange(ctx, s, done, free, due, p)
	}
	return l.start(ctx, s, free, due, p)
}

// handOn has ended what is done, without an exchange.
func (l *producer) handOn() {
	if done := l.capacity.rest(); len(done) > 0 {
		l.w.finisher.take(done...)
	}
}

// overdue is for how long a job must have been due before a producer that does not move counts as stuck.
const overdue = time.Second

// due asks whether the queue has a job that the producer could claim and has not.
func (l *producer) due(ctx context.Context, db DB) (bool, error) {
	return catalog.JobsDue(ctx, db, catalog.DueJobs{Queue: l.queue.Name, Kinds: l.w.kinds, For: overdue})
}

// admitted returns how many of some taken slots the gate lets be filled, and gives the others back.
// A gate that panics lets none.
func (l *producer) admitted(ctx context.Context, taken int) int {
	if l.queue.Admit == nil {
		return taken
	}
	admitted, err := callback.Get("Queue.Admit", l.queue.Admit)
	if err != nil {
		l.w.emit(ctx, pawl.Event{Kind: pawl.EventError, Op: "job.claim", Scope: l.queue.Name, Err: err})
	}
	most := min(taken, max(0, admitted))
	l.capacity.give(taken - most)
	return most
}

// start claims and starts up to free jobs, for which slots were taken, and reports whether the producer may go on. Suspects are left
// where they are unless one is due.
func (l *producer) start(ctx context.Context, s *session, free int, due bool, p pass) (started int, open bool) {
	jobs, err := l.claim(ctx, s, free, due, p)
	if err == nil {
		l.loop.Tick()
	}
	l.capacity.give(free - len(jobs))
	l.launch(s, l.attempts(s, jobs)...)
	return len(jobs), err == nil || l.w.claimFailed(ctx, s, err)
}

// claim takes up to limit due jobs. What is claimed is inside the process's gate: see package solo. Slot, gate,
// claim, connection of the handler: every claim of a job acquires in this order, and never waits for
// one while holding a later one.
func (l *producer) claim(ctx context.Context, s *session, limit int, suspects bool, p pass) (jobs []Job, err error) {
	var rows []contract.JobClaimRow
	defer func() { l.mark.end(p, rows, time.Now()) }()
	if !solo.Process.TryEnter(limit) {
		l.handOn() // a suspect may wait for what is done to leave
		if err := solo.Process.Enter(ctx, limit); err != nil {
			return nil, err
		}
	}
	defer func() { solo.Process.Leave(limit - len(rows)) }()
	conn, err := conns.Acquire(ctx, l.w.pool)
	if err != nil {
		return nil, pawl.Wrap("job.claim", err)
	}
	defer conn.Release()
	p.began = time.Now()
	rows, err = contract.JobClaim(ctx, conn, l.queue.Name, s.id, limit, l.w.kinds, suspects, p.since)
	return byID(rows), err
}

// launch has attempts run, for which slots were taken.
func (l *producer) launch(s *session, all ...*attempt) {
	s.inFlight.add(all)
	for _, a := range all {
		go a.execute()
	}
}

// attemptsAtOnce is how many attempts are made together. One that lasts keeps so many in memory.
const attemptsAtOnce = 64

// attempts divides claimed jobs into what one attempt takes: a batch of one kind, or a job.
func (l *producer) attempts(s *session, jobs []Job) []*attempt {
	all := make([]*attempt, 0, len(jobs))
	var block []attempt
	var open map[*Handler]*attempt // the unfilled batch
	for i := range jobs {
		h := l.w.handlers[jobs[i].Kind]
		batched := (h.form == batch || h.form == many) && jobs[i].Crashes == 0 && l.w.losses.Count(jobs[i].ID) == 0
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
		a.w, a.l, a.loop, a.s, a.h, a.jobs = l.w, l, l.loop, s, h, jobs[i:i+1:i+1]
		all = append(all, a)
		if batched {
			if open == nil {
				open = map[*Handler]*attempt{}
			}
			open[h] = a
		}
	}
	return all
}

// kickNow makes the producer look for jobs now instead of after its pause.
func (l *producer) kickNow() {
	select {
	case l.kick <- struct{}{}:
	default:
	}
}

// rest waits for d or a kick, or until a suspect may be claimed that was not asked for, and reports whether ctx is still open.
func (l *producer) rest(ctx context.Context, d time.Duration, suspects <-chan struct{}) bool {
	l.handOn()
	select {
	case <-ctx.Done():
		return false
	case <-l.kick:
	case <-suspects:
	case <-time.After(d):
	}
	return ctx.Err() == nil
}
