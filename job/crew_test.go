package job_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/testbed/patience"
	"github.com/pawl-go/pawl/internal/testbed/pgtest"
	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/pawltest"
)

// effects has no unique constraint, so that a job that takes effect twice is visible.
const effects = "create table effect (job bigint not null)"

func apply(ctx context.Context, tx pgx.Tx, j job.Job) error {
	_, err := tx.Exec(ctx, "insert into effect values ($1)", j.ID)
	return err
}

// A crew is a database with real workers.
type crew struct {
	bed
	url      string
	config   job.Config
	handlers []job.Handler // default: handler, in the transactional form
	handler  func(ctx context.Context, tx pgx.Tx, j job.Job) error

	concurrency int
	abandon     time.Duration
	counters    pawl.Counters

	mu     sync.Mutex
	events []pawl.Event
}

func setupCrew(t *testing.T, schema ...string) *crew {
	t.Helper()
	return setupCrewOn(t, pawltest.URL(t, append([]string{effects}, schema...)...))
}

func setupCrewOn(t *testing.T, url string) *crew {
	t.Helper()
	c := &crew{bed: bed{T: t, pool: poolOf(t, url)}, url: url, abandon: 5 * time.Second, handler: apply}
	c.config = job.Config{Poll: 10 * time.Millisecond, Name: "crew",
		Backoff: job.Backoff{Base: time.Millisecond, Max: 10 * time.Millisecond},
		Hooks:   pawl.Join(c.counters.Hooks(), pawl.Hooks{OnEvent: c.record})}
	return c
}

func poolOf(t *testing.T, url string) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = 12
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

func (c *crew) record(_ context.Context, e pawl.Event) {
	c.mu.Lock()
	c.events = append(c.events, e)
	c.mu.Unlock()
	if e.Err != nil {
		c.Logf("%s %s job %d: %v", e.Kind, e.Op, e.JobID, e.Err)
	}
}

// saw counts the events of one kind and operation.
func (c *crew) saw(kind pawl.EventKind, op string) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range c.events {
		if e.Kind == kind && e.Op == op {
			n++
		}
	}
	return n
}

// hire starts a worker. The returned function stops it and waits for its Run.
func (c *crew) hire() (stop func()) {
	c.Helper()
	return c.run(c.worker(c.pool))
}

func (c *crew) worker(pool *pgxpool.Pool) *job.Worker {
	c.Helper()
	w, err := job.NewWorker(pool, c.complete())
	c.must(err)
	w.AbandonAfter(c.abandon)
	return w
}

func (c *crew) complete() job.Config {
	config := c.config
	config.Queues = []job.Queue{{Name: "q", Concurrency: c.concurrency}}
	config.Handlers = c.handlers
	if config.Handlers == nil {
		config.Handlers = []job.Handler{inTx("k", c.handler)}
	}
	return config
}

// octets are the jobs of these tests, for the forms that take a Definition.
var octets = job.Define("k", job.Defaults[[]byte]{})

// inBatches sets the batch size of a handler for many jobs.
func inBatches(of int, h job.Handler) job.Handler {
	if many, is := h.(job.ManyHandler); is {
		return many.With(job.ManyPolicy{BatchSize: of})
	}
	return h
}

// inTx makes a handler from a function that takes the job without a decoded payload.
func inTx(kind string, fn func(ctx context.Context, tx pgx.Tx, j job.Job) error) job.Handler {
	return job.HandleTx(kind, func(ctx context.Context, tx pgx.Tx, t job.Task[[]byte]) error { return fn(ctx, tx, t.Job) })
}

func (c *crew) run(w *job.Worker) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		c.Helper()
		cancel()
		c.must(patience.Receive(c, "Run has returned", done))
	})
	c.Cleanup(stop)
	return stop
}

func (c *crew) enqueueMany(n int, r job.Request) {
	c.Helper()
	r.Queue, r.Kind = "q", "k"
	for range n {
		c.enqueue(r)
	}
}

// untilTrue polls a condition in this process.
func (c *crew) untilTrue(what string, reached func() bool) {
	c.Helper()
	patience.Until(c, what, reached)
}

func (c *crew) untilDone() {
	c.Helper()
	c.until("jobs are left", "select count(*) from pawl.job where status <> 'dead_letter'", 0)
}

func (c *crew) wantEffects(want int) {
	c.Helper()
	c.wantCount("select count(*) from effect", want)
	c.wantCount("select count(*) from (select from effect group by job having count(*) > 1) as d", 0)
}

// deadLetter returns the attempts and the last error of the only dead letter.
func (c *crew) deadLetter() (attempts int, why string) {
	c.Helper()
	err := c.pool.QueryRow(c.Context(), "select d.attempts, d.last_error from pawl_v1.dead_letters as d").Scan(&attempts, &why)
	c.must(err)
	return attempts, why
}

func (c *crew) wantDeadLetter(attempts int, words string) {
	c.Helper()
	if got, why := c.deadLetter(); got != attempts || !strings.Contains(why, words) {
		c.Errorf("dead letter after %d attempts: %s; want %d attempts and %q", got, why, attempts, words)
	}
}

// adminOf connects to another database of the same server.
func adminOf(t *testing.T) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), pgtest.ServerURL(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func (c *crew) wantText(query, want string) {
	c.Helper()
	var got string
	c.must(c.pool.QueryRow(c.Context(), query).Scan(&got))
	if got != want {
		c.Errorf("%s: %s, want %s", query, got, want)
	}
}

// left counts the jobs that will still be tried.
func (c *crew) left() (n int) {
	c.Helper()
	c.must(c.pool.QueryRow(c.Context(), "select count(*) from pawl.job where status <> 'dead_letter'").Scan(&n))
	return n
}
