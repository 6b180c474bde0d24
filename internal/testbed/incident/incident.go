// Package incident is one bad morning, on which the tools of operators are tested: a worker that died with a job in its hands, a lane behind a poison
// job, a provider that was away, ten thousand dead letters. The worker is a process of its own, the provider an HTTP server, the deaths are SIGKILL.
package incident

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/pawltest"
)

// Schema is what the handlers write into.
const Schema = "create table charged (what text primary key); create table mailed ()"

// DeadLetters is how many there are of the night before.
const DeadLetters = 10_000

// Timeout is how long a test waits for anything, on a machine that does much else.
const Timeout = 8 * time.Minute

// A Morning is a database, a provider that may be away, and workers that are started by hand.
type Morning struct {
	testing.TB
	Pool *pgxpool.Pool
	Bank *pawltest.Provider

	away atomic.Bool
}

// New begins the morning in a database that has [Schema]. The provider is away, the dead letters of the night are there, and a worker has died with the job
// "held" in its hands. Behind it wait a poison job with two more of its lane, and two payments of another.
func New(t *testing.T, url string) *Morning {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), url+"&pool_max_conns=8") // of the workers too, which get the pool's URL
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	m := &Morning{TB: t, Pool: pool}
	m.away.Store(true)
	m.Bank = pawltest.NewProvider(t, time.Hour, func(int, *http.Request) pawltest.Lie {
		if m.away.Load() {
			return pawltest.CutBefore
		}
		return ""
	})
	if _, err := pool.Exec(t.Context(), `insert into pawl.job (queue, kind, payload, status, attempts, created_at, last_errors)
select 'mail', 'welcome', '"mail"', 'dead_letter', 25, now() - interval '9 hours', '[{"at": "2026-01-01T00:00:00Z", "attempt": 25, "error": "smtp: connection refused"}]'
  from generate_series(1, $1)`, DeadLetters); err != nil {
		t.Fatal(err)
	}
	m.enqueue(job.Request{Queue: "orders", Kind: "charge", Value: "held", Key: "order-1"})
	m.workerDies("orders-1")
	for _, what := range []string{"poison", "second", "third"} {
		m.enqueue(job.Request{Queue: "orders", Kind: "charge", Value: what, Lane: "account 7"})
	}
	for _, what := range []string{"invoice", "next"} {
		m.enqueue(job.Request{Queue: "pay", Kind: "payment", Value: what, Lane: "account 8"})
	}
	return m
}

// BankIsBack ends the provider's outage.
func (m *Morning) BankIsBack() { m.away.Store(false) }

// Work starts a worker that lives until the test has ended.
func (m *Morning) Work() {
	m.Helper()
	worker, err := deployment{Provider: m.Bank.URL + "/charges"}.worker(m.Pool)
	if err != nil {
		m.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	over := make(chan error, 1)
	go func() { over <- worker.Run(ctx) }()
	m.Cleanup(func() {
		stop()
		if err := <-over; err != nil && !errors.Is(err, context.Canceled) {
			m.Errorf("the worker: %v", err)
		}
	})
}

// Until waits until a count is reached.
func (m *Morning) Until(query string, want int) {
	m.Helper()
	m.Eventually(fmt.Sprintf("%s is %d", query, want), func() bool {
		var got int
		if err := m.Pool.QueryRow(m.Context(), query).Scan(&got); err != nil {
			m.Fatal(err)
		}
		return got == want
	})
}

// Eventually waits until ok says so.
func (m *Morning) Eventually(what string, ok func() bool) {
	m.Helper()
	for deadline := time.Now().Add(Timeout); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			m.Fatalf("not within %v: %s", Timeout, what)
		}
	}
}

// IsOver requires that all that should have happened has happened once, and that the audit tells what was done by hand.
func (m *Morning) IsOver() {
	m.Helper()
	m.Until("select count(*) from pawl.job", 0)
	m.Until("select count(*) from mailed", DeadLetters)
	for query, want := range map[string]string{
		"select string_agg(c.what, ' ' order by c.what) from charged as c":                                                               "held invoice next second third",
		"select string_agg(s.n, ', ') from (select a.verb || ' ' || count(*) as n from pawl.audit as a group by a.verb order by 1) as s": "job_discard 1, job_retry 10000, lane_unblock 1, step_settle 1",
	} {
		var got string
		if err := m.Pool.QueryRow(m.Context(), query).Scan(&got); err != nil || got != want {
			m.Errorf("%s: %s, want %s (%v)", query, got, want, err)
		}
	}
	if requests, charges := m.Bank.Requests(), len(m.Bank.Charges()); requests != 3 || charges != 2 {
		m.Errorf("%d charges in %d requests, want one for each invoice, and one request more, that was lost", charges, requests)
	}
}

func (m *Morning) enqueue(r job.Request) {
	m.Helper()
	if _, err := job.Enqueue(m.Context(), m.Pool, r); err != nil {
		m.Fatal(err)
	}
}

// workerDies starts a worker process and returns when SIGKILL has ended it, with a job in its hands, and the server has noticed: until
// then a claim that was on its way may still take what comes next.
func (m *Morning) workerDies(name string) {
	m.Helper()
	text, err := json.Marshal(deployment{URL: m.Pool.Config().ConnString(), Provider: m.Bank.URL + "/charges", Name: name, Lease: time.Second, Dies: true})
	if err != nil {
		m.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(m.Context(), Timeout)
	defer cancel()
	victim := exec.CommandContext(ctx, os.Args[0])
	victim.Env = append(os.Environ(), environment+"="+string(text), "PGAPPNAME="+name)
	var said bytes.Buffer
	victim.Stderr = &said
	err = victim.Run()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL || ctx.Err() != nil {
		m.Fatalf("the worker ended with %v: %s", err, strings.TrimSpace(said.String()))
	}
	m.Until("select count(*) from pg_stat_activity where datname = current_database() and application_name = '"+name+"'", 0)
}
