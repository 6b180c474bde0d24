package job

import (
	"errors"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/contract"
)

// endedItself handles a job that its handler ended with the jobs behind it (lane_finish), and
// reports whether err says so. If the end is unknown, it releases the job, which resolves that.
func (a *attempt) endedItself(j Job, err error, took time.Duration) bool {
	var end *contract.Ended
	if !errors.As(err, &end) {
		return false
	}
	w, s := a.w, a.s
	event := w.event([]Job{j}, "job.finish", end.Err)
	event.Took = took
	switch {
	case end.Outcome == "finished":
		event.Kind, event.Err = pawl.EventSucceeded, nil
		if end.Members > 0 {
			event.Count = 1 + end.Members
		}
	case end.Outcome == "stale" && end.Asked:
		event.Kind = pawl.EventCommitUnknown
	case end.Outcome == "stale":
		event.Kind, event.Err = pawl.EventStaleWriteRefused, &pawl.Error{Op: "job.finish", Code: pawl.CodeFenceLost}
	default:
		event.Kind = pawl.EventWastedWork
		w.emit(s.ctx, event)
		w.settle(s.ctx, j, nil)
		return true
	}
	w.emit(s.ctx, event)
	w.promoter.after(j.Queue, end.Lanes)
	return true
}
