package job

import (
	"context"
	"time"
)

// A line works on one queue: as many jobs in hand as it has slots.
type line struct {
	w     *Worker
	queue Queue
	slots chan struct{} // one token a job in hand
	kick  chan struct{}
}

func newLine(w *Worker, q Queue) *line {
	return &line{w: w, queue: q, slots: make(chan struct{}, q.Concurrency), kick: make(chan struct{}, 1)}
}

// work claims as many jobs as there are free slots and starts them, until ctx ends. Only it fills slots, but for the
// odd job that is claimed by its id.
func (l *line) work(ctx context.Context, s *session) {
	for {
		free := l.take(ctx, maxBatch)
		if free == 0 {
			return
		}
		jobs, err := Claim(ctx, l.w.pool, l.queue.Name, s.id, free, l.w.kinds...)
		l.give(free - len(jobs))
		if err != nil && !l.w.claimFailed(ctx, s, err) {
			return
		}
		for _, group := range l.groups(jobs) {
			go func() {
				defer l.give(len(group))
				l.w.attempt(s, l.w.handlers[group[0].Kind], group)
			}()
		}
		if len(jobs) == 0 && !l.rest(ctx) {
			return
		}
	}
}

// groups divides claimed jobs into what one attempt takes: a batch of one kind, or a job.
func (l *line) groups(jobs []Job) (groups [][]Job) {
	open := map[string]int{} // kind to the index of its unfilled batch
	for _, j := range jobs {
		h := l.w.handlers[j.Kind]
		if h.form != batch || j.Crashes > 0 {
			groups = append(groups, []Job{j})
			continue
		}
		at, ok := open[j.Kind]
		if !ok || len(groups[at]) == h.policy.BatchSize {
			at = len(groups)
			groups = append(groups, nil)
			open[j.Kind] = at
		}
		groups[at] = append(groups[at], j)
	}
	return groups
}

// rest waits for the next poll or a kick and reports whether ctx is still open.
func (l *line) rest(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-l.kick:
	case <-time.After(l.w.cfg.Poll):
	}
	return ctx.Err() == nil
}

// take waits for one slot, takes up to limit, and returns how many it took: none if ctx has ended.
func (l *line) take(ctx context.Context, limit int) (taken int) {
	select {
	case l.slots <- struct{}{}:
	case <-ctx.Done():
		return 0
	}
	if ctx.Err() != nil {
		l.give(1)
		return 0
	}
	for taken = 1; taken < limit; taken++ {
		select {
		case l.slots <- struct{}{}:
		default:
			return taken
		}
	}
	return taken
}

// takeAll takes slot after slot until it has them all or ctx ends.
func (l *line) takeAll(ctx context.Context) (taken int) {
	for ; taken < cap(l.slots); taken++ {
		select {
		case l.slots <- struct{}{}:
		case <-ctx.Done():
			return taken
		}
	}
	return taken
}

func (l *line) give(n int) {
	for range n {
		<-l.slots
	}
}
