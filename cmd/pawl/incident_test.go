package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	lib "github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/pawltest"
	"github.com/pawl-go/pawl/step"
)

// A deployment is a worker as production runs it: it charges, in the lane of an account; pays, which calls a provider; and mails.
type deployment struct {
	URL, Provider string
	Name          string
	Lease         time.Duration
	Dies          bool // of SIGKILL, in the middle of its first charge
}

// deploymentEnv holds a deployment, as JSON, for a worker process.
const deploymentEnv = "PAWL_TEST_DEPLOYMENT"

// workAsChild works until the process is killed.
func workAsChild(text string) error {
	var d deployment
	if err := json.Unmarshal([]byte(text), &d); err != nil {
		return err
	}
	pool, err := pgxpool.New(context.Background(), d.URL)
	if err != nil {
		return err
	}
	worker, err := d.worker(pool)
	if err != nil {
		return err
	}
	return worker.Run(context.Background())
}

var quiet = lib.Hooks{OnEvent: func(context.Context, lib.Event) {}}

func (d deployment) worker(pool *pgxpool.Pool) (*job.Worker, error) {
	client := caller()
	return job.NewWorker(pool, job.Config{
		Name: d.Name, Lease: d.Lease, Hooks: quiet,
		Queues: []job.Queue{{Name: "orders"}, {Name: "pay"}, {Name: "mail"}},
		Handlers: []job.Handler{
			job.HandleTx("charge", func(ctx context.Context, tx pgx.Tx, t job.Task[string]) error {
				if t.Value == "poison" {
					return lib.Final(errors.New("no such account"))
				}
				_, err := tx.Exec(ctx, "insert into charged (what) values ($1)", t.Value)
				if d.Dies {
					_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
					select {} // the signal is on its way
				}
				return err
			}),
			job.Handle("payment", func(ctx context.Context, t job.Task[string]) error {
				payment := step.Step{Name: "pay", Recovery: step.AtMostOnce(), Provider: "bank", Request: t.Value, Timeout: 5 * time.Second, Hooks: quiet}
				if _, err := step.Run(ctx, pool, t, payment, func(ctx context.Context, c step.Call) (string, error) {
					return post(ctx, client, d.Provider, t.Value)
				}); err != nil {
					return err
				}
				_, err := pool.Exec(ctx, "insert into charged (what) values ($1)", t.Value)
				return err
			}),
			job.HandleManyTx("welcome", func(ctx context.Context, tx pgx.Tx, batch []job.Task[string]) error {
				_, err := tx.Exec(ctx, "insert into mailed select from generate_series(1, $1::int)", len(batch))
				return err
			}),
		},
	})
}

// An incident is one bad morning: a database, a provider that may be away, and a worker that somebody starts when they find that there
// is none.
type incident struct {
	*testing.T
	db   string
	pool *pgxpool.Pool
	bank *pawltest.Provider
	away atomic.Bool
}

// deadLetters is how many there are of the night before.
const deadLetters = 10_000

// workerDies starts a worker process and returns when SIGKILL has ended it, with a job in its hands, and the server has noticed: until
// then a claim that was on its way may still take what comes next.
func (i *incident) workerDies(name string) {
	i.Helper()
	text, err := json.Marshal(deployment{URL: i.pool.Config().ConnString(), Provider: i.bank.URL + "/charges", Name: name, Lease: time.Second, Dies: true})
	if err != nil {
		i.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(i.Context(), commandLimit)
	defer cancel()
	victim := exec.CommandContext(ctx, os.Args[0])
	victim.Env = append(os.Environ(), deploymentEnv+"="+string(text), "PGAPPNAME="+name)
	var said bytes.Buffer
	victim.Stderr = &said
	err = victim.Run()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL || ctx.Err() != nil {
		i.Fatalf("the worker ended with %v: %.2000s", err, said.String())
	}
	i.until("select count(*) from pg_stat_activity where datname = current_database() and application_name = '"+name+"'", 0)
}

// work starts a worker that lives.
func (i *incident) work() {
	worker, err := deployment{Provider: i.bank.URL + "/charges"}.worker(i.pool)
	if err != nil {
		i.Fatal(err)
	}
	background(i.T, "worker", worker.Run)
}

// says runs a command and requires lines in what it prints, whether it finds trouble (exit 1) or not.
func (i *incident) says(line string, patterns ...string) string {
	i.Helper()
	r := pawl(i.T, i.db, shellWords(line)...)
	for _, p := range patterns {
		if !regexp.MustCompile("(?m)" + p).MatchString(r.stdout + r.stderr) {
			i.Errorf("pawl %s: no %q in\n%s%s", line, p, r.stdout, r.stderr)
		}
	}
	return r.stdout
}

// do runs a command that must succeed.
func (i *incident) do(line string) string {
	i.Helper()
	return mustPawl(i.T, i.db, shellWords(line)...).stdout
}

func (i *incident) enqueue(r job.Request) {
	i.Helper()
	if _, err := job.Enqueue(i.Context(), i.pool, r); err != nil {
		i.Fatal(err)
	}
}

func (i *incident) until(query string, want int) {
	i.Helper()
	eventually(i.T, fmt.Sprintf("%s is %d", query, want), func() bool {
		var got int
		if err := i.pool.QueryRow(i.Context(), query).Scan(&got); err != nil {
			i.Fatal(err)
		}
		return got == want
	})
}

// One morning everything is wrong at once. Each trouble is found and cured with the command line alone, by the commands of the
// runbooks; in the end all that should have happened has happened once, and the audit tells who did what, and why.
func TestIncident(t *testing.T) {
	t.Parallel()
	db := pawltest.URL(t, "create table charged (what text primary key); create table mailed ()")
	pool, err := pgxpool.New(t.Context(), db+"&pool_max_conns=8")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	i := &incident{T: t, db: db, pool: pool}
	i.away.Store(true)
	i.bank = pawltest.NewProvider(t, time.Hour, func(int, *http.Request) pawltest.Lie {
		if i.away.Load() {
			return pawltest.CutBefore
		}
		return ""
	})
	const well = "doctor --skip durability,snapshots,collations" // the server is that of all tests
	exec1(t, db, fmt.Sprintf(`
insert into pawl.job (queue, kind, payload, status, attempts, created_at, last_errors)
select 'mail', 'welcome', '"mail"', 'dead_letter', 25, now() - interval '9 hours', '[{"at": "2026-01-01T00:00:00Z", "attempt": 25, "error": "smtp: connection refused"}]' from generate_series(1, %d)`, deadLetters))
	i.enqueue(job.Request{Queue: "orders", Kind: "charge", Value: "held", Key: "order-1"})
	i.workerDies("orders-1")
	for _, what := range []string{"poison", "second", "third"} {
		i.enqueue(job.Request{Queue: "orders", Kind: "charge", Value: what, Lane: "account 7"})
	}
	for _, what := range []string{"invoice", "next"} {
		i.enqueue(job.Request{Queue: "pay", Kind: "payment", Value: what, Lane: "account 8"})
	}

	// 1. Nothing moves: the worker died with a job in its hands, and none has been started since, which would have noticed. Its presence
	// lock is free, so somebody who looks learns that it is gone.
	eventually(t, "doctor finds the silence", func() bool {
		return strings.Contains(pawl(t, db, shellWords(well)...).stdout, "workers: ")
	})
	i.says("status", `^orders +1 +\d+[sm] +0 +2 +1 +0`, `^mail +.* 10000 `, `orders-1 +gone +\d+[sm] +1`)
	i.says(well+" --waiting 1s", `^workers: worker \d+ \(orders-1\) has been silent since .* and holds 1 jobs`, `fix  start a worker`, `^waiting: 1 jobs of kind charge in queue orders are due`)
	i.says("explain order-1", `job \d+ orders +processing .*worker=orders-1`)
	i.work()
	i.until("select count(*) from charged where what = 'held'", 1)

	// 2. A poison head: what stands behind it in its lane waits for a decision.
	i.until("select count(*) from pawl.job where queue = 'orders' and status = 'dead_letter' and lane_head", 1)
	i.says("status", `^orders .* 1$`)
	lane := regexp.MustCompile(`account 7 +block +(\d+) +dead_letter +2`).FindStringSubmatch(i.do("lanes list --blocked"))
	if lane == nil {
		t.Fatal("the lane is not listed as blocked")
	}
	i.says("explain "+lane[1], `failed .*no such account`, `next: pawl dlq show `+lane[1])
	i.do("lanes unblock orders 'account 7' --job " + lane[1] + " --reason 'the account was closed; the others are theirs' --yes")
	i.do("dlq discard " + lane[1] + " --reason 'the account was closed' --yes")
	i.until("select count(*) from charged where what in ('second', 'third')", 2)

	// 3. The provider was away: nobody knows whether the payment executed, and its lane stands frozen behind it.
	i.until("select count(*) from pawl.step where status = 'unknown'", 1)
	i.until("select count(*) from pawl.job where queue = 'pay' and status = 'unknown'", 1)
	i.says("stale", `^step +job/pay .*unknown`, `^job +pay .*unknown`)
	step := regexp.MustCompile(`(?m)^(job/pay) +(\S+) +pay +unknown +(\d+) +at_most_once +bank`).FindStringSubmatch(i.do("steps list --provider bank"))
	if step == nil {
		t.Fatal("the step is not listed")
	}
	id, _, _ := strings.Cut(step[2], "@")
	i.says("explain "+id, `step job/pay .* called`, `step job/pay .* unknown`, `next: .*pawl steps settle`)
	i.away.Store(false)
	eventually(t, "the step is settled", func() bool { // not before a frozen call can no longer be sent
		return pawl(t, db, "steps", "settle", step[1], step[2], "pay", "not_executed", "--fence", step[3], "--reason", "their books have no such payment", "--yes").code == 0
	})
	i.until("select count(*) from charged where what in ('invoice', 'next')", 2)
	if requests, charges := i.bank.Requests(), len(i.bank.Charges()); requests != 3 || charges != 2 {
		t.Errorf("%d charges in %d requests, want one for each invoice, and one request more, that was lost", charges, requests)
	}

	// 4. A caller uses a key a second time, for something else, and asks why it is refused.
	refused := connect(t, db)
	if _, err := refused.Exec(t.Context(), `select pawl_v1.job_enqueue('orders', 'charge', '"another"', '{"key": "order-1"}')`); err == nil || !strings.Contains(err.Error(), "P4002") {
		t.Fatalf("a reused key: %v", err)
	}
	i.says("explain order-1", `enqueue_key orders order-1 +taken .*fingerprint=[0-9a-f]{64} job=\d+`, `memory_ends`)

	// 5. Ten thousand dead letters, all of one cause, which is gone.
	i.says("dlq list --queue mail --limit 1", `smtp: connection refused`)
	if got := i.do("dlq retry --queue mail --error 'connection refused' --dry-run"); !strings.HasPrefix(got, "would retry 10000 dead letters") {
		t.Error(got)
	}
	began := time.Now()
	if got := i.do("dlq retry --queue mail --error 'connection refused' --reason 'the mail server is back' --yes"); !strings.HasPrefix(got, "10000 of 10000") {
		t.Error(got)
	}
	t.Logf("retried %d in %v", deadLetters, time.Since(began).Round(time.Millisecond))
	i.until("select count(*) from mailed", deadLetters)

	// All is well, and on record.
	i.until("select count(*) from pawl.job", 0)
	i.do(well)
	i.says("stale", "nothing stands still")
	i.says("status", "^no queues")
	if got := one[string](t, db, "select string_agg(s.n, ', ') from (select a.verb || ' ' || count(*) as n from pawl.audit as a group by a.verb order by 1) as s"); got != "job_discard 1, job_retry 10000, lane_unblock 1, step_settle 1" {
		t.Error(got)
	}
	if got := one[string](t, db, "select string_agg(c.what, ' ' order by c.what) from charged as c"); got != "held invoice next second third" {
		t.Error(got)
	}
}
