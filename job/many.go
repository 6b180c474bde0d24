package job

import (
	"context"
	"errors"
	"time"

	"github.com/pawl-go/pawl/internal/fault"
	"github.com/pawl-go/pawl/internal/txn"
)

// executeMany calls the handler for many jobs, then finishes those that succeeded. A crash in
// between runs the handler again for all of them.
func (a *attempt) executeMany() {
	w, s, h, jobs := a.w, a.s, a.h, a.jobs
	if err := fault.At("job.handle.before"); err != nil {
		w.settleAll(s.ctx, jobs, err)
		return
	}
	for i := range jobs {
		jobs[i].tied = true
	}
	start := time.Now()
	returned := a.watch(jobs)
	err := txn.Run(a, h.policy.Timeout, func(ctx context.Context) error { return h.call(ctx, nil, jobs) })
	returned()
	took := time.Since(start)

	var done []Job
	for i, j := range jobs {
		if failure := errorOf(err, i); failure != nil {
			if !a.endedItself(j, failure, took) {
				a.unfinished(j, failure)
			}
			continue
		}
		done = append(done, j)
	}
	if len(done) > 0 {
		// Recalled jobs are included: their handler is done, and the database refuses their end.
		w.finish(s, done, took)
	}
}

// errorOf returns the error for job i: its own, or the one that a handler returned for all.
func errorOf(err error, i int) error {
	var each eachError
	if errors.As(err, &each) {
		return each[i]
	}
	return err
}
