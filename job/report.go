package job

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/internal/contract"
)

const (
	reportEvery = 10 * time.Second
	recentRuns  = 1000
)

// A stopwatch stores the durations of a handler's last runs. A batch is one run.
type stopwatch struct {
	mu     sync.Mutex
	runs   int64
	recent []time.Duration // a ring buffer once it is full
}

func (s *stopwatch) add(took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.recent) < recentRuns {
		s.recent = append(s.recent, took)
	} else {
		s.recent[s.runs%recentRuns] = took
	}
	s.runs++
}

// p99 returns the number of runs, and the time that 99 of 100 recent ones did not exceed.
func (s *stopwatch) p99() (runs int64, took time.Duration) {
	s.mu.Lock()
	runs, recent := s.runs, slices.Clone(s.recent)
	s.mu.Unlock()
	if len(recent) == 0 {
		return 0, 0
	}
	slices.Sort(recent)
	return runs, recent[(len(recent)*99+99)/100-1]
}

// timed returns the handler with a stopwatch around each run, including failed runs.
func (h settings) timed() settings {
	inner, watch := h.call, new(stopwatch)
	h.watch = watch
	if first := h.first; first != nil { // its Timeout applies to first
		h.first = func(ctx context.Context, j Job) (call, error) {
			defer func(start time.Time) { watch.add(time.Since(start)) }(time.Now())
			return first(ctx, j)
		}
		return h
	}
	h.call = func(ctx context.Context, tx pgx.Tx, jobs []Job) error {
		defer func(start time.Time) { watch.add(time.Since(start)) }(time.Now())
		return inner(ctx, tx, jobs)
	}
	return h
}

// reported holds the values that are reported as soon as they change.
type reported struct {
	pooled  bool
	wakeups string
}

func (w *Worker) reportable(s *session) reported {
	now := reported{pooled: s.pooled.Load()}
	switch {
	case w.cfg.Presence.Off:
		now.wakeups = "off"
	case s.present.Load():
		now.wakeups = "on"
	case isClosed(s.presenceKnown):
		now.wakeups = "none"
	}
	return now
}

func isClosed(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// report returns the worker's report for operators.
func (w *Worker) report(watched bool) *contract.WorkerReport {
	r := &contract.WorkerReport{DrainMS: w.cfg.ShutdownTimeout.Milliseconds(), Queues: w.queues(), Watched: watched, Woken: w.announcer.woken.Load(), Polled: w.announcer.polled.Load(), Handlers: map[string]contract.HandlerReport{}}
	for kind, h := range w.handlers {
		runs, took := h.watch.p99()
		r.Handlers[kind] = contract.HandlerReport{TimeoutMS: h.policy.Timeout.Milliseconds(), Runs: runs, P99MS: took.Milliseconds()}
	}
	return r
}
