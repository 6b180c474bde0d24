package demo

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/testbed/provider"
	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/step"
)

const letterKind = "letter"

// sayPrefix starts a line of a worker that is to be printed.
const sayPrefix = "say "

// A postman is the worker process of --lease: it mails letters and reports what it does.
type postman struct {
	workerConfig
	pool   *pgxpool.Pool
	hooks  pawl.Hooks
	out    io.Writer
	client *http.Client
}

func (c workerConfig) postman(pool *pgxpool.Pool, hooks pawl.Hooks, out io.Writer) (part, error) {
	p := &postman{c, pool, hooks, out, &http.Client{Transport: &step.Transport{Base: oneRequestEach(), Reads: true}}}
	return job.NewWorker(pool, job.Config{Queues: []job.Queue{{Name: letterQueue(c.Schema), Concurrency: 1}}, Handlers: []job.Handler{job.Handle(letterKind, p.mail)},
		Lease: letterLease, Backoff: backoff, Poll: 100 * time.Millisecond, Name: c.name(), Hooks: hooks})
}

func (p *postman) say(format string, args ...any) {
	fmt.Fprintf(p.out, "%s%s %s\n", sayPrefix, processName(os.Getpid()), fmt.Sprintf(format, args...))
}

// The lines that the stage waits for, so that all lines are printed in order.
const (
	handsMail = "hands the mail to the mail server"
	wroteRow  = "has written its row and ended the job, in one transaction"
)

// mail sends a letter, unless it was sent already, and writes its row.
func (p *postman) mail(ctx context.Context, t job.Task[[]byte]) error {
	p.say("claims %s: attempt %d, fence %d", t.Value, t.Attempt, t.Fence)
	knew := "finds in the database that the mail was sent: it does not send again"
	s := step.Step{Name: "mail", Provider: "mail server", Request: t.Value, Timeout: mailLimit, Hooks: p.hooks,
		Recovery: step.Checked(func(ctx context.Context, c step.Call) (step.ProbeResult, any, error) {
			knew = "has asked the mail server: already sent; it does not send again"
			return sent(ctx, p.client, p.Letters, c)
		}, 100*time.Millisecond)}
	_, err := step.Run(ctx, p.pool, t.Job, s, func(ctx context.Context, c step.Call) (provider.Charge, error) {
		p.say(handsMail)
		made, err := post(ctx, p.client, p.Letters, t.Value)
		c.Reference(made.ID)
		knew = "gets the response that the mail was sent"
		return made, err
	})
	if err != nil {
		return err
	}
	p.say("%s", knew)
	// A worker that wakes up after its lease soon loses its context. It writes all the same, so
	// that the demo shows the refusal.
	if err := p.write(context.WithoutCancel(ctx), t); err != nil {
		p.say("is refused, with its row: %v", err)
		return err
	}
	p.say(wroteRow)
	return nil
}

func (p *postman) write(ctx context.Context, t job.Task[[]byte]) error {
	tx, err := p.pool.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(ctx) }()
	if _, err := tx.Exec(ctx, inSchema("insert into SCHEMA.letters (key) values ($1)", p.Schema), string(t.Value)); err != nil {
		return err
	}
	if err := t.Finish(ctx, tx); err != nil {
		return err
	}
	return tx.Commit(ctx)
}
