package command_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/pawl-go/pawl/command"
	"github.com/pawl-go/pawl/internal/fault"
	"github.com/pawl-go/pawl/internal/testbed/patience"
)

// childEnv holds an errand, as JSON, for a child process.
const childEnv = "PAWL_TEST_COMMAND"

// An errand says how a child process runs the command.
type errand struct {
	URL string
	// "once", "sql" (once through database/sql), "commit" (leased, rows in Commit), or "outside"
	// (leased, rows through another connection).
	Form   string
	Lease  command.LeaseOptions
	Faults string
}

// TestCommandProcess is the child process of other tests. It prints how the command ended.
func TestCommandProcess(t *testing.T) {
	var e errand
	if text := os.Getenv(childEnv); text == "" {
		return
	} else if err := json.Unmarshal([]byte(text), &e); err != nil {
		t.Fatal(err)
	}
	if e.Faults != "" {
		if err := fault.Arm(e.Faults); err != nil {
			t.Fatal(err)
		}
	}
	pool, err := pgxpool.New(t.Context(), e.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	r, err := e.run(t.Context(), pool)
	fmt.Printf("ended replayed=%v error=%v\n", r.Replayed, err)
}

// run runs the command; the tests call it for the same key.
func (e errand) run(ctx context.Context, pool *pgxpool.Pool) (command.Result[order], error) {
	switch e.Form {
	case "commit":
		return command.Leased(ctx, pool, intent("k", "p"), e.Lease, commitOrder)
	case "sql":
		db := stdlib.OpenDBFromPool(pool)
		defer db.Close()
		return command.OnceSQL(ctx, db, intent("k", "p"), command.Options{}, placeSQL("one"))
	case "outside":
		return command.Leased(ctx, pool, intent("k", "p"), e.Lease, func(ctx context.Context, a *command.Attempt[order]) error {
			_, err := pool.Exec(ctx, "insert into orders (body) values ('outside')")
			return err
		})
	}
	return command.Once(ctx, pool, intent("k", "p"), command.Options{}, place("one"))
}

// A child is such a process.
type child struct {
	*bed
	cmd   *exec.Cmd
	lines chan string
}

func (b *bed) process(e errand) *child {
	b.Helper()
	e.URL = b.url
	e.Lease.Hooks.OnEvent = nil
	text, err := json.Marshal(struct {
		URL, Form, Faults string
		Lease             struct {
			Lease      time.Duration
			Repeatable bool
		}
	}{e.URL, e.Form, e.Faults, struct {
		Lease      time.Duration
		Repeatable bool
	}{e.Lease.Lease, e.Lease.Repeatable}})
	b.must(err)
	p := &child{bed: b, cmd: exec.Command(os.Args[0], "-test.run=^TestCommandProcess$"), lines: make(chan string, 10)}
	p.cmd.Env = append(os.Environ(), childEnv+"="+string(text))
	out, err := p.cmd.StdoutPipe()
	b.must(err)
	b.must(p.cmd.Start())
	go p.read(out)
	b.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
	})
	return p
}

func (p *child) read(out io.Reader) {
	defer close(p.lines)
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "ended ") {
			p.lines <- lines.Text()
		}
	}
}

// end returns the line that the process printed, or "" if it was killed.
func (p *child) end() string {
	p.Helper()
	return patience.Receive(p, "the process has ended", p.lines)
}

func (p *child) untilStopped() {
	p.Helper()
	patience.Until(p, "the process has stopped itself", func() bool {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(p.cmd.Process.Pid, &status, syscall.WUNTRACED|syscall.WNOHANG, nil)
		p.must(err)
		return pid > 0 && status.Stopped()
	})
}

func (p *child) wake() { p.Helper(); p.must(p.cmd.Process.Signal(syscall.SIGCONT)) }
