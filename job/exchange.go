package job

import (
	"context"
	"errors"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/conns"
	"github.com/pawl-go/pawl/internal/contract"
	"github.com/pawl-go/pawl/internal/fault"
	"github.com/pawl-go/pawl/internal/pace"
	"github.com/pawl-go/pawl/internal/solo"
)

// exchange ends attempts whose handlers have returned. In the same call it claims jobs for the free
// slots, which are taken, and for the slots of the ended attempts. It reports how many jobs it
// started and whether the producer may continue. No handler starts before the reply to COMMIT.
//
// exchange: a crash before COMMIT costs a second run of those handlers, and after it a counted
// crash.
func (p *producer) exchange(ctx context.Context, s *session, done []*attempt, free int, due bool, pass pass) (started int, open bool) {
	room := free + len(done) // entrants of the isolator
	row, err := p.askExchange(ctx, s, done, free, due, pass)
	if err == nil {
		err = fault.At("job.exchange.after")
	}
	// Unknown ends are asked again. Unknown claims end the session.
	if err != nil {
		solo.Process.Leave(room)
		p.capacity.give(free)
		p.w.finishAgainAll(done, nil, err)
		return 0, p.w.claimFailed(ctx, s, err)
	}
	p.loop.Tick()
	p.w.promoter.after(p.queue.Name, row.Lanes)
	over := p.w.finishAgainAll(done, row.Failed, nil)
	solo.Process.Leave(room - len(row.Jobs))
	have := free
	for _, a := range over {
		have += len(a.jobs)
		a.producer = nil // its slot goes to a claimed job
	}
	p.capacity.give(have - len(row.Jobs))
	if len(over) > 0 {
		p.w.hooks.Go(func() { finishedAll(over) })
	}
	p.found(ctx, pass.occasion, len(row.Jobs))
	p.launch(s, p.attempts(s, byID(row.Jobs))...)
	if row.LeaseLost {
		p.w.giveUp(ctx, s, &pawl.Error{Op: "job.exchange", Code: pawl.CodeFenceLost})
		return 0, false
	}
	return len(row.Jobs), true
}

var errExchange = errors.New("job_exchange did not return the outcome of each job")

func (p *producer) askExchange(ctx context.Context, s *session, done []*attempt, free int, due bool, pass pass) (row contract.JobExchangeRow, err error) {
	defer func() { p.mark.end(pass, row.Jobs, time.Now()) }()
	ctx, cancel := lingering(ctx, statementLimit) // a stopping worker still ends done jobs
	defer cancel()
	ends := make([]contract.Holding, len(done))
	for i, a := range done {
		ends[i] = contract.Holding{ID: a.jobs[0].ID, Fence: a.jobs[0].Fence}
	}
	conn, err := conns.Acquire(ctx, p.w.pool)
	if err != nil {
		return row, pawl.Wrap("job.exchange", err)
	}
	defer conn.Release()
	pass.began = time.Now()
	row, err = contract.JobExchange(ctx, conn, ends, p.queue.Name, s.id, free, p.w.kinds, due, pass.since)
	if err == nil && row.Finished+len(row.Failed) != len(ends) {
		err = errExchange
	}
	return row, err
}

// lingering returns a context that ends a given time after ctx.
func lingering(ctx context.Context, after time.Duration) (_ context.Context, cancel context.CancelFunc) {
	longer, end := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		pace.Sleep(longer, after)
		end()
	})
	return longer, func() { stop(); end() }
}

// finishAgainAll retries failed ends, or all ends after err. It returns the other attempts.
func (w *Worker) finishAgainAll(all []*attempt, failed []contract.JobEndRow, err error) (finished []*attempt) {
	outcomes := make(map[int64]string, len(failed))
	for _, f := range failed {
		outcomes[f.ID] = f.Outcome
	}
	for _, a := range all {
		outcome, open := outcomes[a.jobs[0].ID]
		if !open && err == nil {
			finished = append(finished, a)
			continue
		}
		a.ending = jobEnd{job: &a.jobs[0], of: a, outcome: outcome, err: err}
		go a.finishAgain()
	}
	return finished
}
