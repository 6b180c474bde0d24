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

// A JobTest tests a job's handler of any form, with a [job.Worker] on databases of its own.
// Wherever the process dies, the jobs must be done in the end, and your tables and the enqueued
// jobs must be as after one undisturbed run. The comparison is that of [HandlerTest].
type JobTest struct {
	// Schema holds scripts that make your tables, and the rows that the handler needs.
	Schema []string
	// Handler is the handler to test. Set Handler or Make.
	Handler job.Handler
	// Make returns the handler, for one that keeps a pool, as [job.Handle] needs. It is called for
	// each database, and again after a death.
	Make func(*pgxpool.Pool) job.Handler
	// Jobs are enqueued before the process begins: one, or several for [job.HandleManyTx] and
	// [job.HandleMany]. Default queue "test" and the handler's kind.
	Jobs []job.Request
	// Ignore names more columns that are not compared, as "column" or "table.column". Default none.
	Ignore []string
	// Check tests what else must hold at the end, such as the number of calls of another system. It
	// is called once for each database. Optional.
	Check func(testing.TB, *pgxpool.Pool)
}

func (p JobTest) crashCase() crashCase {
	return crashCase{
		schema: p.Schema, ignore: p.Ignore, check: p.Check, begin: p.begin,
		advice: "write rows only in the transaction that the handler gets; without one, make writes repeatable: under a key made of the job, " +
			"such as its id, with \"on conflict do nothing\", or in a transaction with Job.Hold and Job.Finish; call other systems in a step " +
			"of package step, with a recovery that can look up the outcome of a call, such as Keyed or Checked",
		idle: "was the handler called?",
	}
}

func (p JobTest) begin(ctx context.Context, t *trial, of *process) (life, error) {
	h := p.Handler
	if p.Make != nil {
		h = p.Make(of.yours)
	}
	if h == nil {
		return nil, errors.New("a JobTest needs Handler or Make")
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

// requests returns Jobs with defaults filled in.
func (p JobTest) requests(h job.Handler) ([]job.Request, error) {
	requests := slices.Clone(p.Jobs)
	for i, r := range requests {
		requests[i].Kind, requests[i].Queue = cmp.Or(r.Kind, h.Kind()), cmp.Or(r.Queue, "test")
		if requests[i].Kind != h.Kind() {
			return nil, fmt.Errorf("a job is of kind %q, and the handler of kind %q", r.Kind, h.Kind())
		}
	}
	if len(requests) == 0 {
		return nil, errors.New("a JobTest needs Jobs, at least one")
	}
	return requests, nil
}

// call is middleware that watches the transaction of a handler. It runs one handler at a time, so
// that every run passes the same points. The return of a handler without a transaction is a point
// too. In a dead process a handler's result is dropped.
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
