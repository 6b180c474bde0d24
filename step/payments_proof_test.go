//go:build proof

package step_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/fault"
	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/pawltest"
	"github.com/pawl-go/pawl/step"
)

var payments = flag.Int("payments", 300, "payments of each policy in TestPayments")

// childEnv holds an order, as JSON, for a worker process.
const childEnv = "PAWL_TEST_PAYER"

// An order says how a worker process pays.
type order struct {
	URL, Provider, Policy string
	Faults                string
	Concurrency           int
	Steps                 int           // of a payment; several are named by their numbers
	Timeout               time.Duration // of a call; 0: 200 ms
}

// TestPayerProcess is not a test but the worker process of TestPayments.
func TestPayerProcess(t *testing.T) {
	var o order
	if text := os.Getenv(childEnv); text == "" {
		return
	} else if err := json.Unmarshal([]byte(text), &o); err != nil {
		t.Fatal(err)
	}
	if o.Faults != "" {
		if err := fault.Arm(o.Faults); err != nil {
			t.Fatal(err)
		}
	}
	pool, err := pgxpool.New(t.Context(), o.URL)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &step.Transport{Reads: true}}
	b := &bed{T: t, pool: pool, provider: &pawltest.Provider{URL: o.Provider}, client: client}
	w, err := job.NewWorker(pool, job.Config{
		Queues: []job.Queue{{Name: "pay", Concurrency: o.Concurrency}},
		Lease:  time.Second, Poll: 20 * time.Millisecond, Backoff: job.Backoff{Base: 5 * time.Millisecond, Max: 50 * time.Millisecond}, MaxCrashes: 1000,
		Hooks: pawl.Hooks{OnEvent: func(_ context.Context, e pawl.Event) { fmt.Printf("event %s %s\n", e.Kind, e.Op) }},
		Handlers: []job.Handler{job.Handle("payment", func(ctx context.Context, task job.Task[string]) error {
			for n := range max(o.Steps, 1) {
				what := task.Value
				if n > 0 {
					what = fmt.Sprintf("%s, step %d", what, n)
				}
				s := step.Step{Name: fmt.Sprint("charge ", n), Recovery: o.policy(b, what), Request: what, Timeout: cmp.Or(o.Timeout, 200*time.Millisecond),
					Hooks: pawl.Hooks{OnEvent: func(_ context.Context, e pawl.Event) { fmt.Printf("event %s %s\n", e.Kind, e.Op) }}}
				_, err := step.Run(ctx, pool, task.Job, s, func(ctx context.Context, c step.Call) (pawltest.Charge, error) {
					made, err := b.charge(ctx, what)
					c.Reference(made.ID)
					return made, err
				})
				if err != nil {
					return err
				}
			}
			return nil
		})},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func (o order) policy(b *bed, body string) step.Recovery {
	switch o.Policy {
	case "keyed":
		return step.Keyed(time.Hour)
	case "checked":
		return step.Checked(b.found(body), 100*time.Millisecond)
	}
	return step.AtMostOnce()
}

// Payers are worker processes, one after the other in each of several places.
type payers struct {
	*bed
	order  order
	points []string
	action string
	skip   int // at most so many payments before a fault stops a process
	mu     sync.Mutex
	events map[string]int
	killed atomic.Int32
	frozen atomic.Int32
}

// keep runs worker processes one after the other, each armed at a crash point, until ctx ends.
func (p *payers) keep(ctx context.Context, n int) {
	random := rand.New(rand.NewPCG(uint64(n), 7))
	for round := n; ctx.Err() == nil; round++ {
		o := p.order
		o.Faults = fmt.Sprintf("%s=%s@%d", p.points[round%len(p.points)], p.action, random.IntN(p.skip))
		text, _ := json.Marshal(o)
		c := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestPayerProcess$", "-test.timeout=3h")
		c.Env = append(os.Environ(), childEnv+"="+string(text))
		var out bytes.Buffer
		c.Stdout, c.Stderr = &out, &out
		if err := c.Start(); err != nil {
			p.Error(err)
			return
		}
		awake := make(chan struct{})
		go p.wake(c.Process, awake)
		_ = c.Wait()
		close(awake)
		if s, ok := c.ProcessState.Sys().(syscall.WaitStatus); ok && s.Signaled() && ctx.Err() == nil {
			if p.action == "kill" {
				p.killed.Add(1)
			}
		}
		p.mu.Lock()
		for line := range strings.Lines(out.String()) {
			if kind, found := strings.CutPrefix(line, "event "); found {
				p.events[strings.Fields(kind)[0]]++
			}
		}
		p.mu.Unlock()
	}
}

// wake continues a process that stopped itself, after its lease expired and others have its jobs.
func (p *payers) wake(process *os.Process, ended chan struct{}) {
	for {
		select {
		case <-ended:
			return
		case <-time.After(100 * time.Millisecond):
		}
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", process.Pid))
		if err != nil || !bytes.Contains(stat, []byte(") T ")) {
			continue
		}
		p.frozen.Add(1)
		time.Sleep(2500 * time.Millisecond)
		_ = process.Signal(syscall.SIGCONT)
		time.Sleep(300 * time.Millisecond) // it does its next action
		_ = process.Kill()
	}
}

// Workers are killed or frozen at each crash point, with an unreliable provider. The charges are
// those that the policy promises, and every missing one is an unknown step (traps T4, T18).
func TestPayments(t *testing.T) {
	points := []string{"step.plan.before", "step.plan.after", "step.call.before", "step.call.after", "step.record.after"}
	for _, policy := range []string{"keyed", "checked", "at_most_once"} {
		// A frozen worker has one payment at a time, so that it can cause one charge.
		for action, how := range map[string]struct{ each, concurrency, skip int }{"kill": {*payments, 8, 40}, "stop": {*payments / 4, 1, 3}} {
			each := how.each
			t.Run(policy+", "+action, func(t *testing.T) {
				t.Parallel()
				every := []pawltest.Lie{pawltest.TimeOutBefore, pawltest.TimeOutAfter, pawltest.CutBefore, pawltest.CutAfter, pawltest.FailBefore, pawltest.FailAfter, pawltest.Conflict}
				var lock sync.Mutex
				random := rand.New(rand.NewPCG(1, 2))
				provider := pawltest.NewProvider(t, time.Hour, func(int, *http.Request) pawltest.Lie {
					lock.Lock()
					defer lock.Unlock()
					if random.IntN(12) > 0 {
						return ""
					}
					return every[random.IntN(len(every))]
				})
				url := pawltest.URL(t)
				pool, err := pgxpool.New(t.Context(), url)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(pool.Close)
				b := &bed{T: t, pool: pool, provider: provider}
				requests := make([]job.Request, each)
				for n := range requests {
					requests[n] = job.Request{Queue: "pay", Kind: "payment", Payload: fmt.Appendf(nil, "%q", fmt.Sprint("payment ", n)), MaxAttempts: 1000}
				}
				_, err = job.EnqueueMany(t.Context(), pool, requests)
				b.must(err)
				p := &payers{bed: b, order: order{URL: url, Provider: provider.URL, Policy: policy, Concurrency: how.concurrency}, points: points, action: action, skip: how.skip, events: map[string]int{}}
				ctx, stop := context.WithCancel(t.Context())
				var all sync.WaitGroup
				for n := range 3 {
					all.Go(func() { p.keep(ctx, n) })
				}
				left := "select count(*) from pawl.job where status <> 'unknown'"
				for end := time.Now().Add(8 * time.Minute); b.count(left) > 0 && time.Now().Before(end); {
					time.Sleep(20 * time.Millisecond)
				}
				stop()
				all.Wait()
				p.judge(each)
			})
		}
	}
}

// judge compares the charges with the database.
func (p *payers) judge(each int) {
	per := map[string]int{}
	for _, c := range p.provider.Charges() {
		per[c.Body]++
	}
	twice := 0
	for _, n := range per {
		twice += n - 1
	}
	count := func(status string) int {
		return p.count("select count(*) from pawl.step where status = $1", status)
	}
	succeeded, unknown, open := count("succeeded"), count("unknown"), p.count("select count(*) from pawl.job where status <> 'unknown'")
	p.Logf("counted: steps, %s: %d payments, %d processes killed, %d frozen; %d charges in %d requests, %d twice; %d succeeded, %d unknown, %d open",
		p.order.Policy, each, p.killed.Load(), p.frozen.Load(), len(p.provider.Charges()), p.provider.Requests(), twice, succeeded, unknown, open)
	p.Logf("events: %v", p.events)
	if open > 0 || succeeded+unknown != each {
		p.Errorf("%d of %d payments have no end", each-succeeded-unknown, each)
	}
	if p.killed.Load()+p.frozen.Load() == 0 {
		p.Error("nothing was killed or frozen")
	}
	if len(per) < succeeded {
		p.Errorf("%d payments succeeded, %d were charged", succeeded, len(per))
	}
	made := map[string]bool{}
	for _, c := range p.provider.Charges() {
		made[c.ID] = true
	}
	rows, err := p.pool.Query(p.Context(), "select e.reference from pawl.step as e where e.status = 'succeeded' and e.reference is not null")
	p.must(err)
	references, err := pgx.CollectRows(rows, pgx.RowTo[string])
	p.must(err)
	for _, reference := range references {
		if !made[reference] {
			p.Errorf("a step succeeded with %s, which was never made", reference)
		}
		delete(made, reference) // two steps with one charge
	}
	switch p.order.Policy {
	case "keyed":
		if len(per) != each || twice > 0 || unknown > 0 {
			p.Errorf("want each charged once and known")
		}
	case "checked":
		if len(per) != each || unknown > 0 || twice > int(p.frozen.Load()) {
			p.Errorf("want each charged, and twice at most once a frozen process")
		}
	default:
		if twice > 0 {
			p.Errorf("want none charged twice")
		}
	}
}

// A handler of five steps is killed after the third. The next process runs only the last two.
func TestFiveSteps_SIGKILLAfterTheThird(t *testing.T) {
	t.Parallel()
	url := pawltest.URL(t)
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	b := &bed{T: t, pool: pool, provider: pawltest.NewProvider(t, time.Hour, nil)}
	b.enqueue("x")
	o := order{URL: url, Provider: b.provider.URL, Policy: "at_most_once", Concurrency: 1, Steps: 5, Timeout: 10 * time.Second, Faults: "step.record.after=kill@2"}
	run := func(ctx context.Context, o order) error {
		text, _ := json.Marshal(o)
		c := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestPayerProcess$", "-test.timeout=1m")
		c.Env = append(os.Environ(), childEnv+"="+string(text))
		return c.Run()
	}
	var death *exec.ExitError
	if err := run(t.Context(), o); !errors.As(err, &death) || death.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Fatalf("the first process: %v", err)
	}
	b.wantCharges(3)
	b.wantStatus("succeeded succeeded succeeded")
	o.Faults = ""
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, o) }()
	b.until("the job is done", func() bool { return b.count("select count(*) from pawl.job") == 0 })
	stop()
	<-ended
	b.wantStatus("succeeded succeeded succeeded succeeded succeeded")
	b.wantCharges(5)
	for n, c := range b.provider.Charges() {
		if want := []string{"x", "x, step 1", "x, step 2", "x, step 3", "x, step 4"}[n]; c.Body != want {
			t.Errorf("charge %d is %q, want %q", n+1, c.Body, want)
		}
	}
}
