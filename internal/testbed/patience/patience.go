// Package patience waits in tests. It counts polls instead of seconds, so a wait takes longer on a
// machine that stalls. A wait that times out fails with a text that begins with "TIMING:" and
// describes the load of the machine. That distinguishes a slow machine from a defect.
package patience

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// shortest and longest bound the time between two polls.
const (
	shortest = 10 * time.Millisecond
	longest  = 100 * time.Millisecond
)

// pause returns the time after a poll, counted from 0. It grows by a millisecond each time, because
// a poll is often a query. Those of many waiting tests would use the processor that the awaited
// work needs.
func pause(n int) time.Duration { return min(shortest+time.Duration(n)*time.Millisecond, longest) }

// Limit is the least duration of a wait: three minutes, times PAWL_TEST_PATIENCE.
var Limit = limit(os.Getenv("PAWL_TEST_PATIENCE"))

func limit(factor string) time.Duration {
	f, err := strconv.ParseFloat(factor, 64)
	if err != nil || f <= 0 {
		f = 1
	}
	return time.Duration(f * float64(3*time.Minute))
}

// A DB is a pgx pool, connection or transaction that queries the sessions of a server.
type DB interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Until waits until ok returns true. what describes the condition in a failure: "the job is done".
func Until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	if vain := poll(Limit, ok); vain != "" {
		t.Fatalf("TIMING: waited in vain: %s\n%s", what, vain)
	}
}

// Within is Until with another limit than Limit, for a condition that may take longer. It also
// counts polls, so it does not test a duration.
func Within(t testing.TB, limit time.Duration, what string, ok func() bool) {
	t.Helper()
	if vain := poll(limit, ok); vain != "" {
		t.Fatalf("TIMING: waited in vain: %s\n%s", what, vain)
	}
}

// Watch calls look repeatedly for a while, to test that something does not happen. It counts calls,
// so a machine that stalls makes as many.
func Watch(while time.Duration, look func()) {
	for range int(while/shortest) + 1 {
		look()
		time.Sleep(shortest)
	}
}

// Poll waits until ok returns true, or returns the error of ctx once it has ended. It is for
// handlers, brokers and senders that a test plays, which have a context and cannot end the test.
// Poll calls ctx.Err and never waits for Done.
func Poll(ctx context.Context, ok func() bool) error {
	for n := 0; ctx.Err() == nil; n++ {
		if ok() {
			return nil
		}
		time.Sleep(pause(n))
	}
	return ctx.Err()
}

// Elapse sleeps for d: the work of a handler, the pace of a sender, a timeout that only time ends.
// The test must also hold if Elapse takes seconds longer, or if concurrent work has not started
// when it returns. To wait for a condition, use Until. To test that something does not happen, use
// Watch.
func Elapse(d time.Duration) { time.Sleep(d) }

// Hour waits until at least a minute of the current hour is left, at most one minute. It is for a
// test that reads the hour more than once.
func Hour(t testing.TB) {
	t.Helper()
	Until(t, "the hour goes on for a minute", func() bool {
		now := time.Now().UTC()
		return now.Add(time.Minute).Truncate(time.Hour).Equal(now.Truncate(time.Hour))
	})
}

// Row waits until a query returns true. A failure also shows the sessions of the server.
func Row(t testing.TB, db DB, what, query string, args ...any) {
	t.Helper()
	var last error
	vain := poll(Limit, func() (ok bool) {
		last = db.QueryRow(t.Context(), query, args...).Scan(&ok)
		return ok && last == nil
	})
	if vain != "" {
		t.Fatalf("TIMING: waited in vain: %s (%v)\n%s\n%s", what, last, Sessions(db), vain)
	}
}

// blocked counts sessions of the database that wait for a lock of another session. A wait for a
// statement that runs does not count, because it ends by itself. The column wait_event does not
// show a lock reliably: it is null for a moment, once a second, during the check for deadlocks.
const blocked = `select pg_catalog.count(*) >= $1
  from pg_catalog.pg_stat_activity as a
  cross join lateral (select pg_catalog.pg_blocking_pids(a.pid) as pids) as w
 where a.datname = pg_catalog.current_database()
   and a.query like $2
   and pg_catalog.cardinality(w.pids) > 0
   and not exists (
         select
           from pg_catalog.pg_stat_activity as b
          where b.pid = any (w.pids)
            and b.state = 'active'
            and pg_catalog.cardinality(pg_catalog.pg_blocking_pids(b.pid)) = 0)`

// Blocked waits until n sessions of the database wait for a lock of another one, in a statement
// that is like pattern.
func Blocked(t testing.TB, db DB, n int, pattern string) {
	t.Helper()
	Row(t, db, fmt.Sprintf("%d sessions are blocked in a statement like %s", n, pattern), blocked, n, pattern)
}

// Receive waits for a value of a channel.
func Receive[T any](t testing.TB, what string, from <-chan T) (value T) {
	t.Helper()
	received := false
	vain := poll(Limit, func() bool {
		select {
		case value = <-from:
			received = true
		default:
		}
		return received
	})
	if vain != "" {
		t.Fatalf("TIMING: waited in vain: %s\n%s", what, vain)
	}
	return value
}

// poll returns "" once ok has returned true. If ok never does, poll returns a description of the
// machine's load during the wait.
func poll(limit time.Duration, ok func() bool) (vain string) {
	began := time.Now()
	var stall, waited time.Duration
	for n := 0; waited < limit; n++ {
		if ok() {
			return ""
		}
		slept, wait := time.Now(), min(pause(n), limit-waited)
		time.Sleep(wait)
		waited += wait
		stall = max(stall, time.Since(slept)-wait)
	}
	return fmt.Sprintf("It took %v; the longest stall was %v; the load is %s.\n\n%s", time.Since(began).Round(time.Millisecond),
		stall.Round(time.Millisecond), load(), goroutines())
}

func load() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(text))
}

func goroutines() string {
	text := make([]byte, 1<<20)
	return string(text[:runtime.Stack(text, true)])
}

// Sessions describes each session of a server: its statement and its wait event.
func Sessions(db DB) string {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	rows, err := db.Query(ctx, `
select pg_catalog.format('%s %s %s %s/%s since %s, blocked by %s: %s', a.pid, a.datname, a.state, a.wait_event_type, a.wait_event,
         a.state_change, pg_catalog.pg_blocking_pids(a.pid), pg_catalog.left(a.query, 200))
  from pg_catalog.pg_stat_activity as a
 where a.backend_type operator(pg_catalog.=) 'client backend'
 order by a.pid`)
	if err != nil {
		return "sessions: " + err.Error()
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return "sessions: " + err.Error()
	}
	return "sessions:\n" + strings.Join(lines, "\n")
}
