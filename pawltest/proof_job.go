package pawltest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/job"
)

// A JobProof is a job's handler to be proved, of any form, by a [job.Worker] on databases of its own: wherever the process dies, the jobs
// must be done in the end, and your tables and what is enqueued must be as after a run that went well. What is compared is that of [Proof].
type JobProof struct {
	// Schema are the scripts that make your tables, and the rows that the handler needs.
	Schema []string
	// Handler is what is proved. Give it or Make.
	Handler job.Handler
	// Make makes the handler, for one that keeps a pool, as [job.Handle] needs. It is called when a process begins: for each database, and
	// again after a death.
	Make func(*pgxpool.Pool) job.Handler
	// Jobs are what is enqueued before the process begins: one, or several for [job.HandleManyTx] and [job.HandleMany]. Default queue
	// "proof", and the kind of the handler.
	Jobs []job.Request
	// Ignore are more columns that are not compared, as "column" or "table.column". Default none.
	Ignore []string
	// Check is what else must hold afterwards, such as how often something outside was called. It is called once for each database.
	// Optional.
	Check func(testing.TB, *pgxpool.Pool)
}

func (p JobProof) provedCase() provedCase {
	return provedCase{
		schema: p.Schema, ignore: p.Ignore, check: p.Check, begin: p.begin,
		advice: "what the handler writes must go through the transaction that it is handed, or, without one, bear repeating: under a key made of the job, " +
			"such as its id, with \"on conflict do nothing\", or in a transaction with Job.Hold and Job.Finish; what it calls outside belongs into a step " +
			"of package step, with a recovery that can find out what became of a call, such as Keyed or Checked",
		idle: "was the handler called?",
	}
}

func (p JobProof) begin(ctx context.Context, t *trial, of *process) (life, error) {
	h := p.Handler
	if p.Make != nil {
		h = p.Make(of.yours)
	}
	if h == nil {
		return nil, errors.New("a JobProof needs a Handler, or Make, which makes one")
	}
	requests, err := p.requests(h)
	if err == nil && t.first() {
		_, err = job.EnqueueMany(ctx, t.eyes, requests)
	}
	if err != nil {
		return nil, err
	}
	cfg := job.Config{
		Handlers: []job.Handler{h}, Middleware: []job.Middleware{of.call}, ShutdownTimeout: grace, Backoff: job.Backoff{Base: time.Millisecond, Max: 10 * time.Millisecond},
		Hooks: pawl.Hooks{OnEvent: func(context.Context, pawl.Event) {}},
	}
	for _, r := range requests {
		if !slices.ContainsFunc(cfg.Queues, func(q job.Queue) bool { return q.Name == r.Queue }) {
			cfg.Queues = append(cfg.Queues, job.Queue{Name: r.Queue})
		}
	}
	return func(ctx context.Context) (contents, error) {
		drained, err := (&drain{limit: drainLimit, most: drainAttempts}).work(ctx, of.own, t.eyes, cfg)
		if err != nil {
			return nil, err
		}
		return nil, drained.undone(h.Kind())
	}, nil
}

// requests are the jobs, completed.
func (p JobProof) requests(h job.Handler) ([]job.Request, error) {
	requests := slices.Clone(p.Jobs)
	for i, r := range requests {
		requests[i].Kind, requests[i].Queue = cmp.Or(r.Kind, h.Kind()), cmp.Or(r.Queue, "proof")
		if requests[i].Kind != h.Kind() {
			return nil, fmt.Errorf("a job is of kind %q, and the handler of kind %q", r.Kind, h.Kind())
		}
	}
	if len(requests) == 0 {
		return nil, errors.New("a JobProof needs Jobs, one at least")
	}
	return requests, nil
}

// call is middleware. It watches the transaction that a handler is handed, and runs one handler at a time so that the places of a run are
// those of the next. The return of a handler that has no transaction is a place by itself. The handlers of a dead process come to nothing.
func (p *process) call(ctx context.Context, c job.Call, next func(context.Context) error) error {
	p.running.Lock()
	defer p.running.Unlock()
	if c.Tx != nil {
		p.lend(c.Tx.Conn())
	}
	err := next(ctx)
	if p.dead() || c.Tx == nil && err == nil && p.pass("after the handler has returned, before its job is finished") {
		return errCut
	}
	return err
}

// undone says which jobs of a kind have not come to a good end.
func (d Drained) undone(kind string) error {
	bad := Drained{Dead: d.Dead, Cancelled: d.Cancelled, Unknown: d.Unknown}
	for _, j := range d.Left {
		if j.Kind == kind {
			bad.Left = append(bad.Left, j)
		}
	}
	if len(bad.Dead)+len(bad.Cancelled)+len(bad.Unknown)+len(bad.Left) == 0 {
		return nil
	}
	return fmt.Errorf("not every job is done: %s", bad)
}
