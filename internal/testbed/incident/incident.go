// Package incident sets up one incident on which the operators' tools are tested. A worker died
// while it held a job, a lane is blocked by a poison job, a provider was down, and there are ten
// thousand dead letters. The worker is a process of its own that dies by SIGKILL, and the provider
// is an HTTP server.
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

// Schema creates the tables of the handlers.
const Schema = "create table charged (what text primary key); create table mailed ()"

// DeadLetters is the number of dead letters from the night before.
const DeadLetters = 10_000

// Timeout bounds each wait of a test, also on a busy machine.
const Timeout = 8 * time.Minute

// A Morning is a database, a provider that may be down, and workers that the test starts.
type Morning struct {
	testing.TB
	Pool *pgxpool.Pool
	Bank *pawltest.Provider

	away atomic.Bool
}

// New sets up the incident in a database that has [Schema]. The provider is down, the dead letters
// exist, and a worker has died while it held the job "held". Behind that job wait a poison job with
// two more jobs of its lane, and two payments of another lane.
func New(t *testing.T, url string) *Morning {
	t.Helper()
	// Workers use the pool's URL and so this setting.
	pool, err := pgxpool.New(t.Context(), url+"&pool_max_conns=8")
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

// Work starts a worker that runs until the test ends.
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

// Until waits until a query returns want.
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

// Eventually waits until ok returns true.
func (m *Morning) Eventually(what string, ok func() bool) {
	m.Helper()
	for deadline := time.Now().Add(Timeout); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			m.Fatalf("not within %v: %s", Timeout, what)
		}
	}
}

// IsOver requires that every effect happened once, and that the audit lists the manual operations.
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

// workerDies starts a worker process and returns when it has died by SIGKILL while it held a job
// and the server has noticed. Until the server notices, a claim that was on its way may still take
// the next jobs.
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
