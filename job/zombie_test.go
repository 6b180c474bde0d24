package job_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/fault"
	"github.com/pawl-go/pawl/job"
)

const (
	childURL   = "PAWL_TEST_WORKER_URL"
	childFault = "PAWL_TEST_WORKER_FAULT"
)

// TestWorkerProcess is no test: it is the worker process that the tests below start. It prints its events.
func TestWorkerProcess(t *testing.T) {
	url := os.Getenv(childURL)
	if url == "" {
		return // the tests below are what starts it
	}
	if spec := os.Getenv(childFault); spec != "" {
		if err := fault.Arm(spec); err != nil {
			t.Fatal(err)
		}
	}
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	w, err := job.NewWorker(pool, job.Config{Queues: []job.Queue{{Name: "q", Concurrency: 1}}, Handlers: []job.Handler{inTx("k", apply)},
		Lease: time.Second, Timeout: time.Second, Poll: 20 * time.Millisecond, Name: "child",
		Hooks: pawl.Hooks{OnEvent: func(_ context.Context, e pawl.Event) {
			fmt.Printf("event %s %s %v\n", e.Kind, e.Op, e.Err)
		}}})
	if err != nil {
		t.Fatal(err)
	}
	w.AbandonAfter(500 * time.Millisecond)
	if err := w.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// A child is a worker in a process of its own.
type child struct {
	t      *testing.T
	cmd    *exec.Cmd
	events chan string
}

func (c *crew) process(faults string) *child {
	c.Helper()
	p := &child{t: c.T, cmd: exec.Command(os.Args[0], "-test.run=^TestWorkerProcess$"), events: make(chan string, 1000)}
	p.cmd.Env = append(os.Environ(), childURL+"="+c.url, childFault+"="+faults)
	out, err := p.cmd.StdoutPipe()
	c.must(err)
	c.must(p.cmd.Start())
	go p.read(out)
	c.Cleanup(func() {
		_ = p.cmd.Process.Kill() // also ends a stopped one
		_ = p.cmd.Wait()
	})
	return p
}

func (p *child) read(out io.Reader) {
	defer close(p.events)
	for lines := bufio.NewScanner(out); lines.Scan(); {
		p.events <- lines.Text()
	}
}

// untilStopped waits until the process has stopped itself.
func (p *child) untilStopped() {
	p.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(p.cmd.Process.Pid, &status, syscall.WUNTRACED|syscall.WNOHANG, nil)
		if err != nil {
			p.t.Fatal(err)
		}
		if pid > 0 && status.Stopped() {
			return
		}
		if time.Now().After(deadline) {
			p.t.Fatal("the process did not stop itself within 20 s")
		}
	}
}

func (p *child) wake() {
	p.t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		p.t.Fatal(err)
	}
}

// until waits for one of some events of the process.
func (p *child) until(events ...string) {
	p.t.Helper()
	limit := time.After(20 * time.Second)
	for {
		select {
		case line, open := <-p.events:
			if !open {
				p.t.Fatalf("the process ended before %q", events)
			}
			p.t.Log(line)
			for _, event := range events {
				if strings.HasPrefix(line, "event "+event) {
					return
				}
			}
		case <-limit:
			p.t.Fatalf("no event %q within 20 s", events)
		}
	}
}

// A process stopped past its lease between claim and hold: another one finishes its job, and when it wakes it is refused
// before its handler runs.
func TestZombie_StoppedBeforeHold(t *testing.T) {
	t.Parallel()
	c := setupCrew(t)
	c.enqueueMany(1, job.Request{})
	zombie := c.process("job.hold.before=stop")
	zombie.untilStopped()
	c.wantCount("select count(*) from pawl.job where status = 'processing'", 1)
	c.process("")
	c.untilDone()
	c.wantEffects(1)
	zombie.wake()
	zombie.until("stale_write_refused job.finish", "wasted_work job.finish") // whether Hold or the heartbeat asks first
	c.wantEffects(1)

	c.enqueueMany(3, job.Request{}) // it lives on, among the others
	c.untilDone()
	c.wantEffects(4)
}

// A process stopped with its transaction open, after it wrote its rows: it keeps the row locked, and so its job, until
// the server ends the silent transaction. Then another process finishes the job, and what the zombie wrote is gone.
func TestZombie_StoppedBeforeCommit(t *testing.T) {
	t.Parallel()
	c := setupCrew(t)
	c.enqueueMany(1, job.Request{})
	zombie := c.process("job.commit.before=stop")
	zombie.untilStopped()
	c.wantCount("select count(*) from pg_stat_activity where datname = current_database() and state = 'idle in transaction'", 1)
	c.process("")
	c.untilDone()
	c.wantEffects(1)
	zombie.wake()
	zombie.until("commit_unknown job.finish") // it cannot know; the database does
	c.wantEffects(1)

	c.enqueueMany(3, job.Request{})
	c.untilDone()
	c.wantEffects(4)
}

// A process killed at any point of its attempt: another one finishes the job, with one effect.
func TestZombie_KilledAtEveryPoint(t *testing.T) {
	t.Parallel()
	for _, point := range []string{"job.hold.before", "job.handle.before", "job.commit.before", "job.commit.after"} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			c := setupCrew(t)
			c.enqueueMany(3, job.Request{})
			dead := c.process(point + "=kill@1")
			_ = dead.cmd.Wait()
			c.process("")
			c.untilDone()
			c.wantEffects(3)
		})
	}
}
