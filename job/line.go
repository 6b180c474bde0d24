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

// A line works on one queue: as many jobs in hand as it has slots.
type line struct {
	w     *Worker
	queue Queue
	slots *slots // one a job in hand
	kick  chan struct{}
	doze  doze
	mark  watermark
	turns *progress.Loop // nil unless somebody looks
	ahead atomic.Bool    // a turn is on its way beside the line
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
	// The line does not wait for a turn that ends one of aheadShare slots, and at least aheadLeast: it gathers the next one while the server
	// works on this one.
	aheadShare, aheadLeast = 4, 32
)

func newLine(w *Worker, q Queue) *line {
	l := &line{w: w, queue: q, slots: newSlots(q.Concurrency), kick: make(chan struct{}, 1)}
	l.slots.keeps = q.Admit == nil // else a claim may have to wait, and ends do not wait for it
	return l
}

// work claims as many jobs as there are free slots and starts them, until ctx ends. Only it fills slots, but for the
// odd job that is claimed by its id. The ends of simple jobs go along.
func (l *line) work(ctx context.Context, s *session) {
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
			l.turns.Turn()
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
				l.doze.beside.Add(int64(started))
			})
			if free -= share; free+len(done) == 0 {
				continue
			}
			p = l.mark.begin(time.Now())
		}
		if len(done) >= max(aheadLeast, l.queue.Concurrency/aheadShare) && l.ahead.CompareAndSwap(false, true) {
			beside.Go(func() {
				defer l.ahead.Store(false)
				started, _ := l.turn(ctx, s, done, free, due, p)
				l.doze.beside.Add(int64(started))
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
		if started += int(l.doze.beside.Swap(0)); started > 0 {
			pause = briefPoll
			l.found(ctx, started)
		} else {
			pause = l.longer(pause)
		}
	}
}

// next waits until there is something to ask for, and takes it: attempts whose jobs are done, which are inside the process's gate then together
// with the free slots, and slots. Both are empty if the queue admits nothing now. It reports whether ctx is still open.
func (l *line) next(ctx context.Context) (done []*attempt, free int, open bool) {
	for {
		l.slots.gather(ctx, l.queue.Concurrency/2, gatherFor)
		done, free = l.slots.takeDone(ctx, maxBatch)
		if free+len(done) == 0 {
			return nil, 0, false
		}
		// The answer to a turn names jobs, not attempts. And its claim may wait, while ends must
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

// ask claims for the free slots, and ends what is done on the way. It reports how many jobs it started, and whether the line may go on.
func (l *line) ask(ctx context.Context, s *session, done []*attempt, free int, due bool, p pass) (started int, open bool) {
	if len(done) > 0 {
		return l.turn(ctx, s, done, free, due, p)
	}
	return l.start(ctx, s, free, due, p)
}

// handOn has ended what is done, without a turn.
func (l *line) handOn() {
	if done := l.slots.rest(); len(done) > 0 {
		l.w.finisher.take(done...)
	}
}

// overdue is for how long a job must have been due before a line that does not move counts as stuck.
const overdue = time.Second

// due asks whether the queue has a job that the line could claim and has not.
func (l *line) due(ctx context.Context, db DB) (bool, error) {
	return catalog.JobsDue(ctx, db, catalog.DueJobs{Queue: l.queue.Name, Kinds: l.w.kinds, For: overdue})
}

// admitted returns how many of some taken slots the gate lets be filled, and gives the others back.
// A gate that panics lets none.
func (l *line) admitted(ctx context.Context, taken int) int {
	if l.queue.Admit == nil {
		return taken
	}
	admitted, err := callback.Get("Queue.Admit", l.queue.Admit)
	if err != nil {
		l.w.emit(ctx, pawl.Event{Kind: pawl.EventTrouble, Op: "job.claim", Scope: l.queue.Name, Err: err})
	}
	most := min(taken, max(0, admitted))
	l.slots.give(taken - most)
	return most
}

// start claims and starts up to free jobs, for which slots were taken, and reports whether the line may go on. Suspects are left
// where they are unless one is due.
func (l *line) start(ctx context.Context, s *session, free int, due bool, p pass) (started int, open bool) {
	jobs, err := l.claim(ctx, s, free, due, p)
	if err == nil {
		l.turns.Turn()
	}
	l.slots.give(free - len(jobs))
	l.run(s, l.attempts(s, jobs)...)
	return len(jobs), err == nil || l.w.claimFailed(ctx, s, err)
}

// claim takes up to limit due jobs. What is claimed is inside the process's gate: see package solo. The order, here and wherever
// else a job is claimed, is: slot, gate, claim, connection of the handler. Who waits for one of them has none of those behind it.
func (l *line) claim(ctx context.Context, s *session, limit int, suspects bool, p pass) (jobs []Job, err error) {
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

// run has attempts run, for which slots were taken.
func (l *line) run(s *session, all ...*attempt) {
	s.inHand.add(all)
	for _, a := range all {
		go a.run()
	}
}

// attemptsAtOnce is how many attempts are made together. One that lasts keeps so many in memory.
const attemptsAtOnce = 64

// attempts divides claimed jobs into what one attempt takes: a batch of one kind, or a job.
func (l *line) attempts(s *session, jobs []Job) []*attempt {
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
		a.w, a.l, a.loop, a.s, a.h, a.jobs = l.w, l, l.turns, s, h, jobs[i:i+1:i+1]
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

// kickNow makes the line look for jobs now instead of after its pause.
func (l *line) kickNow() {
	select {
	case l.kick <- struct{}{}:
	default:
	}
}

// rest waits for d or a kick, or until a suspect may be claimed that was not asked for, and reports whether ctx is still open.
func (l *line) rest(ctx context.Context, d time.Duration, suspects <-chan struct{}) bool {
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
