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

// exchange ends attempts whose handlers are done, and claims jobs for free slots, which were taken, and for the slots of those that ended. It
// reports how many it started, and whether the producer may go on. No handler starts before the answer has come, and with it the COMMIT.
//
// exchange: a crash before COMMIT costs a second run of those handlers; after it, a crash of the jobs that were claimed.
func (p *producer) exchange(ctx context.Context, s *session, done []*attempt, free int, due bool, pass pass) (started int, open bool) {
	room := free + len(done) // inside the gate, as the jobs that are claimed will be
	row, err := p.askExchange(ctx, s, done, free, due, pass)
	if err == nil {
		err = fault.At("job.exchange.after")
	}
	if err != nil { // what is not known of the ends is asked again; what is not known of the claims ends the session
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
		a.producer = nil // its slot is had by another
	}
	p.capacity.give(have - len(row.Jobs))
	if len(over) > 0 {
		p.w.hooks.Go(func() { finishedAll(over) })
	}
	p.launch(s, p.attempts(s, byID(row.Jobs))...)
	if row.LeaseLost {
		p.w.giveUp(ctx, s, &pawl.Error{Op: "job.exchange", Code: pawl.CodeFenceLost})
		return 0, false
	}
	return len(row.Jobs), true
}

var errExchange = errors.New("job_exchange did not say what became of each job")

func (p *producer) askExchange(ctx context.Context, s *session, done []*attempt, free int, due bool, pass pass) (row contract.JobExchangeRow, err error) {
	defer func() { p.mark.end(pass, row.Jobs, time.Now()) }()
	ctx, cancel := lingering(ctx, statementLimit) // a worker that stops ends what is done
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

// lingering returns a context that ends so long after ctx.
func lingering(ctx context.Context, after time.Duration) (_ context.Context, cancel context.CancelFunc) {
	longer, end := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		pace.Sleep(longer, after)
		end()
	})
	return longer, func() { stop(); end() }
}

// finishAgainAll goes on asking for the ends of attempts that failed, or of all with err. It
// returns the others.
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
