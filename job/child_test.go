package job_test

import (
	"bufio"
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/fault"
	"github.com/pawl-go/pawl/internal/testbed/patience"
	"github.com/pawl-go/pawl/job"
)

// childEnv is the environment variable with a worker process's order, as JSON.
const childEnv = "PAWL_TEST_WORKER"

// An order configures a worker process.
type order struct {
	URL     string
	Session string // application_name of its sessions
	// Form is "transactional" (default), "batch", "sql", "sql batch", "then", "sql then", "simple",
	// "many", "own" (simple, with its own transaction) or "own sql".
	Form        string
	Lanes       bool // the handler records its position in its lane
	MaxCrashes  int
	Faults      string
	Lease       time.Duration // default 1 s
	Timeout     time.Duration // default 1 s
	LeaseOnly   bool
	Concurrency int           // default 1
	Take        time.Duration // how long the handler takes
	Quiet       bool          // print no event
	Poll        time.Duration // default 20 ms
	Hang        bool          // the first attempt of a job does not return
	Freeze      bool          // the handler stops its process once, after it has written its rows
}

// poison is the payload that kills the process which handles it.
const poison = "poison"

// TestWorkerProcess is not a test but the worker process of other tests. It prints its events.
func TestWorkerProcess(t *testing.T) {
	var o order
	if text := os.Getenv(childEnv); text == "" {
		return // other tests start it with an order
	} else if err := json.Unmarshal([]byte(text), &o); err != nil {
		t.Fatal(err)
	}
	if o.Faults != "" {
		if err := fault.Arm(o.Faults); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PGAPPNAME", o.Session)
	pool := poolOf(t, o.URL)
	config := job.Config{Queues: []job.Queue{{Name: "q", Concurrency: o.Concurrency}}, Handlers: []job.Handler{o.handler(pool)},
		Lease: o.Lease, Presence: job.Presence{Off: o.LeaseOnly}, Timeout: o.Timeout, Poll: cmp.Or(o.Poll, 20*time.Millisecond), MaxCrashes: o.MaxCrashes, Name: "child",
		Hooks: pawl.Hooks{OnEvent: func(_ context.Context, e pawl.Event) {
			if !o.Quiet {
				fmt.Printf("event %s %s %v\n", e.Kind, e.Op, e.Err)
			}
		}}}
	w, err := job.NewWorker(pool, config)
	if err != nil {
		t.Fatal(err)
	}
	w.AbandonAfter(500 * time.Millisecond)
	if err := w.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func (o order) handler(pool *pgxpool.Pool) job.Handler {
	var frozen atomic.Bool
	work := func(ctx context.Context, db pawl.DB, j job.Job) error {
		if string(j.Payload) == poison {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
		patience.Elapse(o.Take)
		if o.Hang {
			if _, err := pool.Exec(ctx, "insert into run (job, pid) values ($1, $2)", j.ID, os.Getpid()); err != nil {
				return err
			}
			if j.Crashes == 0 {
				<-ctx.Done()
			}
		}
		insert, args := "insert into effect values ($1)", []any{j.ID}
		if o.Lanes {
			insert, args = "insert into ran (lane, seq, position) values ($1, $2::int, $3)", []any{j.Lane, string(j.Payload), j.Position}
		}
		rows, err := db.Query(ctx, insert, args...)
		if err == nil {
			rows.Close()
			err = rows.Err()
		}
		if o.Freeze && !frozen.Swap(true) {
			_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
			patience.Elapse(100 * time.Millisecond) // the signal may reach another thread first
		}
		return err
	}
	type task = job.Task[[]byte]
	none := func(context.Context, task) (int, error) { return 0, nil }
	switch o.Form {
	case "sql":
		return job.HandleSQL("k", func(ctx context.Context, tx *sql.Tx, t task) error { return work(ctx, pawl.SQLTx(tx), t.Job) })
	case "sql batch":
		return job.HandleManySQL("k", func(ctx context.Context, tx *sql.Tx, ts []task) error {
			for _, t := range ts {
				if err := work(ctx, pawl.SQLTx(tx), t.Job); err != nil {
					return err
				}
			}
			return nil
		})
	case "then":
		return job.HandleThenTx(octets, none, func(ctx context.Context, tx pgx.Tx, t task, _ int) error { return work(ctx, tx, t.Job) })
	case "sql then":
		return job.HandleThenSQL(octets, none, func(ctx context.Context, tx *sql.Tx, t task, _ int) error { return work(ctx, pawl.SQLTx(tx), t.Job) })
	case "batch":
		return job.HandleManyTx("k", func(ctx context.Context, tx pgx.Tx, ts []task) error {
			for _, t := range ts {
				if err := work(ctx, tx, t.Job); err != nil {
					return err
				}
			}
			return nil
		})
	case "many":
		return job.HandleMany("k", func(ctx context.Context, ts []task) []error {
			errs := make([]error, len(ts))
			for i, t := range ts {
				errs[i] = work(ctx, pool, t.Job)
			}
			return errs
		})
	case "simple":
		return job.Handle("k", func(ctx context.Context, t task) error { return work(ctx, pool, t.Job) })
	case "own", "own sql": // without Hold, and ignoring its context: the worst user's handler
		return job.Handle("k", func(ctx context.Context, t task) (err error) {
			ctx = context.WithoutCancel(ctx)
			var tx pawl.Tx
			if o.Form == "own" {
				tx, err = pool.Begin(ctx)
			} else {
				var standard *sql.Tx
				standard, err = stdlib.OpenDBFromPool(pool).BeginTx(ctx, nil)
				tx = pawl.SQLTx(standard)
			}
			if err != nil {
				return err
			}
			defer func() { _ = tx.Rollback(ctx) }()
			if err := work(ctx, tx, t.Job); err != nil {
				return err
			}
			if err := t.Finish(ctx, tx); err != nil {
				return err
			}
			return tx.Commit(ctx)
		})
	}
	return job.HandleTx("k", func(ctx context.Context, tx pgx.Tx, t task) error { return work(ctx, tx, t.Job) })
}

// A child is a worker in its own process.
type child struct {
	t      *testing.T
	cmd    *exec.Cmd
	events chan string
	dead   atomic.Bool
}

func (c *crew) process(o order) *child {
	c.Helper()
	o.URL = c.url
	for _, d := range []*time.Duration{&o.Lease, &o.Timeout} {
		if *d == 0 {
			*d = time.Second
		}
	}
	o.Concurrency = max(1, o.Concurrency)
	text, err := json.Marshal(o)
	c.must(err)
	p := &child{t: c.T, cmd: exec.Command(os.Args[0], "-test.run=^TestWorkerProcess$"), events: make(chan string, 1000)}
	p.cmd.Env = append(os.Environ(), childEnv+"="+string(text))
	out, err := p.cmd.StdoutPipe()
	c.must(err)
	c.must(p.cmd.Start())
	go p.read(out)
	c.Cleanup(p.kill)
	return p
}

func (p *child) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// ended reports whether the process is dead, waited for or not.
func (p *child) ended() bool {
	if p.dead.Load() {
		return true
	}
	var status syscall.WaitStatus
	pid, err := syscall.Wait4(p.cmd.Process.Pid, &status, syscall.WNOHANG, nil)
	if pid > 0 || err != nil {
		p.dead.Store(true)
	}
	return p.dead.Load()
}

// kill ends the process, even if it is stopped, and waits for its end.
func (p *child) kill() {
	_ = p.cmd.Process.Kill()
	p.wait()
}

func (p *child) wait() {
	if !p.dead.Swap(true) {
		_ = p.cmd.Wait()
	}
}

func (p *child) read(out io.Reader) {
	defer close(p.events)
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if line := lines.Text(); line != "" {
			p.events <- line
		}
	}
}

// untilStopped waits until the process has stopped itself.
func (p *child) untilStopped() {
	p.t.Helper()
	patience.Until(p.t, "the process has stopped itself", func() bool {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(p.cmd.Process.Pid, &status, syscall.WUNTRACED|syscall.WNOHANG, nil)
		if err != nil {
			p.t.Fatal(err)
		}
		return pid > 0 && status.Stopped()
	})
}

func (p *child) wake() { p.t.Helper(); p.signal(syscall.SIGCONT) }

// until waits for one of the events and returns its line.
func (p *child) until(events ...string) string {
	p.t.Helper()
	for {
		line := patience.Receive(p.t, fmt.Sprintf("an event of %q", events), p.events)
		if line == "" {
			p.t.Fatalf("the process ended before %q", events)
		}
		p.t.Log(line)
		for _, event := range events {
			if strings.HasPrefix(line, "event "+event) {
				return line
			}
		}
	}
}
