package job

import (
	"context"
	"errors"
	"time"

	"github.com/pawl-go/pawl/internal/fault"
	"github.com/pawl-go/pawl/internal/txn"
)

// executeMany calls the handler for many jobs, then finishes those it is done with. A crash in
// between costs a second run of the handler for all of them.
func (a *attempt) executeMany() {
	w, s, h, jobs := a.w, a.s, a.h, a.jobs
	if err := fault.At("job.handle.before"); err != nil {
		w.settleAll(s.ctx, jobs, err)
		return
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
		w.finish(s, done, took) // also those that were recalled meanwhile: they are done, and the database refuses their end
	}
}

// errorOf is what a handler of many jobs says of one: its own error, or that of all of them.
func errorOf(err error, i int) error {
	var each eachError
	if errors.As(err, &each) {
		return each[i]
	}
	return err
}
