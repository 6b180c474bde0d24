//go:build proof

package job_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/solo"
	"github.com/pawl-go/pawl/job"
)

var wildFor = flag.Duration("wild.for", 20*time.Second, "how long wild handlers and healthy ones share their processes")

const (
	wildEnv    = "PAWL_TEST_WILD"     // the database of a process with wild handlers
	wildLogEnv = "PAWL_TEST_WILD_LOG" // the directory of its log

	wildProcesses = 3
	wildBound     = solo.AloneWait + solo.AloneFor
	wildAtMost    = 4 * time.Minute // if no healthy job was a suspect by then, the test stops
	wildSlack     = 7 * time.Second // for a claim, a handler, and other load on the machine
)

// wildTables records what happened in each process, and when.
const wildTables = `create table life (pid int not null, what text not null, at timestamptz not null default clock_timestamp());
create index on life (pid, at)`

var healthyQueues = []string{"simple", "transactional", "batch"}

// TestWildProcess is not a test but a process of TestSuspect_HealthyWorkNeverStands. Two workers
// share it, one with wild handlers.
func TestWildProcess(t *testing.T) {
	url := os.Getenv(wildEnv)
	if url == "" {
		return
	}
	pool := poolOf(t, url)
	log, err := os.Create(filepath.Join(os.Getenv(wildLogEnv), strconv.Itoa(os.Getpid())))
	if err != nil {
		t.Fatal(err)
	}
	hooks := pawl.LogTo(slog.New(slog.NewTextHandler(log, nil)))
	healthy := job.Config{Lease: 2 * time.Second, Poll: 50 * time.Millisecond, Name: "healthy", Hooks: hooks}
	for _, q := range healthyQueues {
		healthy.Queues = append(healthy.Queues, job.Queue{Name: q, Concurrency: 2})
	}
	insert := func(ctx context.Context, db pawl.DB, what string) error {
		rows, err := db.Query(ctx, "insert into life (pid, what) values ($1, $2)", os.Getpid(), what)
		if err == nil {
			rows.Close()
			err = rows.Err()
		}
		return err
	}
	note := func(ctx context.Context, db pawl.DB, j job.Job) error {
		time.Sleep(100 * time.Millisecond)
		if j.Crashes > 0 {
			if err := insert(ctx, db, "suspect"); err != nil {
				return err
			}
		}
		return insert(ctx, db, j.Kind)
	}
	type task = job.Task[[]byte]
	healthy.Handlers = []job.Handler{
		job.Handle("simple", func(ctx context.Context, t task) error { return note(ctx, pool, t.Job) }),
		job.HandleTx("transactional", func(ctx context.Context, tx pgx.Tx, t task) error { return note(ctx, tx, t.Job) }),
		job.HandleManyTx("batch", func(ctx context.Context, tx pgx.Tx, ts []task) error { return note(ctx, tx, ts[0].Job) }).With(job.ManyPolicy{BatchSize: 2}),
	}
	wild := job.Config{Queues: []job.Queue{{Name: "wild", Concurrency: 6}}, Lease: 2 * time.Second, Poll: 50 * time.Millisecond, Timeout: time.Second, Name: "wild", Hooks: hooks,
		Backoff: job.Backoff{Base: 100 * time.Millisecond, Max: time.Second},
		Handlers: []job.Handler{
			job.Handle("wild", func(ctx context.Context, t task) error {
				if t.Crashes > 0 {
					if err := insert(ctx, pool, "wild suspect"); err != nil {
						return err
					}
				}
				return beWild(ctx, pool)
			}),
			job.Handle("poison", func(context.Context, task) error { os.Exit(3); return nil }),
			job.Handle("slow poison", func(context.Context, task) error { time.Sleep(3 * time.Second); os.Exit(4); return nil }).With(job.Policy{Timeout: time.Minute}),
		}}
	for _, config := range []job.Config{wild, healthy} {
		w, err := job.NewWorker(pool, config)
		if err != nil {
			t.Fatal(err)
		}
		w.AbandonAfter(500 * time.Millisecond)
		go func() { _ = w.Run(context.Background()) }()
	}
	select {}
}

// beWild randomly misbehaves in one of several ways.
func beWild(ctx context.Context, pool *pgxpool.Pool) error {
	switch n := rand.IntN(100); {
	case n < 25:
		<-ctx.Done()
		return ctx.Err()
	case n < 45: // ignores its context
		time.Sleep(time.Second + rand.N(6*time.Second))
		return nil
	case n < 60:
		panic("wild")
	case n < 62:
		os.Exit(2)
	case n < 64:
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	case n < 68:
		if _, err := pool.Exec(ctx, "insert into life (pid, what) values ($1, 'frozen')", os.Getpid()); err != nil {
			return err
		}
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	case n < 85:
		return errors.New("wild")
	}
	return nil
}

// Random handlers hang, ignore their context, panic, exit, kill and freeze their processes, and are
// retried as suspects. In the same processes, no queue of healthy work stops for longer than the
// bound of package solo. No healthy job becomes a dead letter, and the poison jobs do.
func TestSuspect_HealthyWorkNeverStands(t *testing.T) {
	t.Parallel()
	c := setupCrew(t, wildTables)
	c.exec("select pawl_v1.job_enqueue('wild', k, '', '{\"max_attempts\": 1000}') from unnest('{poison,slow poison}'::text[]) as k")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	logs := t.TempDir()
	done := make(chan struct{})
	for range wildProcesses {
		go func() {
			c.keepWild(ctx, logs)
			done <- struct{}{}
		}()
	}
	began := time.Now()
	// A busy machine needs longer than wildFor.
	for time.Since(began) < *wildFor || time.Since(began) < wildAtMost && c.healthySuspects() == 0 {
		// Keep a backlog of healthy work, and add wild work as it is finished.
		c.exec(`select pawl_v1.job_enqueue(q, q, '') from unnest('{simple,transactional,batch}'::text[]) as q, generate_series(1, 40)
 where (select count(*) from pawl.job as j where j.queue = q and j.status = 'pending' and j.crashes = 0) < 40`)
		c.exec(`select pawl_v1.job_enqueue('wild', 'wild', '', '{"max_attempts": 1000}') from generate_series(1, 5)
 where (select count(*) from pawl.job as j where j.kind = 'wild' and j.status <> 'dead_letter') < 30`)
		time.Sleep(200 * time.Millisecond)
	}
	took := time.Since(began)
	cancel()
	for range wildProcesses {
		<-done
	}
	c.judge(took, logs)
}

// healthySuspects counts the healthy jobs that ran as suspects.
func (c *crew) healthySuspects() (n int) {
	c.must(c.pool.QueryRow(c.Context(), "select count(*) from life where what = 'suspect'").Scan(&n))
	return n
}

// keepWild keeps one wild process alive: it wakes a frozen process and restarts a dead one.
func (c *crew) keepWild(ctx context.Context, logs string) {
	for ctx.Err() == nil {
		cmd := exec.Command(os.Args[0], "-test.run=^TestWildProcess$")
		cmd.Env = append(os.Environ(), wildEnv+"="+c.url, wildLogEnv+"="+logs)
		if err := cmd.Start(); err != nil {
			c.Error(err)
			return
		}
		pid := cmd.Process.Pid
		for {
			var status syscall.WaitStatus
			got, err := syscall.Wait4(pid, &status, syscall.WUNTRACED|syscall.WNOHANG, nil)
			if err != nil || got == pid && !status.Stopped() {
				break
			}
			if got == pid {
				time.Sleep(rand.N(8 * time.Second)) // sometimes longer than the lease
				c.lived(pid, "woken")
				_ = syscall.Kill(pid, syscall.SIGCONT)
			}
			if ctx.Err() != nil {
				_ = syscall.Kill(pid, syscall.SIGCONT)
				c.lived(pid, "died")
				_ = syscall.Kill(pid, syscall.SIGKILL)
				_, _ = syscall.Wait4(pid, &status, 0, nil)
				return
			}
			time.Sleep(5 * time.Millisecond)
		}
		c.lived(pid, "died")
	}
}

func (c *crew) lived(pid int, what string) {
	if _, err := c.pool.Exec(context.Background(), "insert into life (pid, what) values ($1, $2)", pid, what); err != nil {
		c.Error(err)
	}
}

// judge checks the events of all processes. From its first healthy job to its end, except while it
// is frozen, each process must work on each of its queues again and again.
func (c *crew) judge(took time.Duration, logs string) {
	c.Helper()
	rows, err := c.pool.Query(c.Context(), "select pid, what, at from life order by pid, at")
	c.must(err)
	type entry struct {
		PID  int
		What string
		At   time.Time
	}
	life, err := pgx.CollectRows(rows, pgx.RowToStructByPos[entry])
	c.must(err)
	var (
		longest time.Duration
		of      string
		worst   entry // the end of the longest pause
		counts  = map[string]int{}
		last    map[string]time.Time
		pid     int
		frozen  bool
	)
	gap := func(e entry, queue string) {
		if d := e.At.Sub(last[queue]); d > longest {
			longest, of, worst = d, fmt.Sprintf("queue %s of process %d, until %s", queue, e.PID, e.At.Format(time.TimeOnly)), e
		}
	}
	for _, e := range life {
		counts[e.What]++
		if e.PID != pid {
			pid, last, frozen = e.PID, nil, false
		}
		switch {
		case e.What == "woken" || last == nil:
			last, frozen = map[string]time.Time{}, false
			for _, q := range healthyQueues {
				last[q] = e.At
			}
		case e.What == "frozen" || e.What == "died":
			for _, q := range healthyQueues {
				if !frozen {
					gap(e, q)
				}
			}
			frozen = true
		case strings.HasSuffix(e.What, "suspect"):
		case !frozen: // a job finished just before a freeze may be recorded after it
			gap(e, e.What)
			last[e.What] = e.At
		}
	}
	c.Logf("in %v: %v; a queue stood still for %v at most (%s), the bound is %v", took.Round(time.Second), counts, longest.Round(time.Millisecond), of, wildBound)
	if longest > wildBound+wildSlack {
		c.Errorf("a queue stood still for %v", longest)
		c.tellOf(worst.PID, worst.At.Add(-longest-time.Second), worst.At.Add(time.Second), logs)
	}
	// All dead workers are swept.
	c.wantCount("select count(*) from pawl.worker where seen_at < now() - interval '20 seconds'", 0)
	for _, what := range append([]string{"suspect", "wild suspect", "died"}, healthyQueues...) {
		if counts[what] == 0 {
			c.Errorf("none of %s: this shows nothing", what)
		}
	}
	var letters []string
	rows, err = c.pool.Query(c.Context(), "select kind || ' ' || crashes || ' ' || crashes_alone from pawl.job where status = 'dead_letter' order by 1")
	c.must(err)
	letters, err = pgx.CollectRows(rows, pgx.RowTo[string])
	c.must(err)
	var states string
	c.must(c.pool.QueryRow(c.Context(), `select string_agg(s.of, '; ') from (
select concat_ws(' ', count(*), j.kind, j.status, 'crashes', min(j.crashes), 'to', max(j.crashes)) as of from pawl.job as j where j.queue = 'wild' or j.crashes > 0 group by j.kind, j.status
union all select concat_ws(' ', 'worker', w.id, w.name, 'seen', round(extract(epoch from clock_timestamp() - w.seen_at)), 's ago, alone', w.alone_job) from pawl.worker as w) as s`).Scan(&states))
	c.Logf("left: %s", states)
	c.Logf("dead letters (kind, deaths, of these alone): %v", letters)
	c.wantCount("select count(*) from pawl.job where status = 'dead_letter' and queue <> 'wild'", 0)
	if *wildFor >= 5*time.Minute {
		c.wantCount("select count(*) from pawl.job where status = 'dead_letter' and kind like '%poison'", 2)
	}
}

// tellOf logs what all processes did in a period, second by second, and the log of one of them.
func (c *crew) tellOf(pid int, from, to time.Time, logs string) {
	c.Helper()
	rows, err := c.pool.Query(c.Context(), `select format('%s process %s: %s', s.at, s.pid, string_agg(s.n || ' ' || s.what, ', ' order by s.what))
  from (select date_trunc('second', l.at)::time as at, l.pid, l.what, count(*) as n from life as l where l.at between $1 and $2 group by 1, 2, 3) as s
 group by s.at, s.pid
 order by s.pid, s.at`, from, to)
	c.must(err)
	seconds, err := pgx.CollectRows(rows, pgx.RowTo[string])
	c.must(err)
	c.Logf("in that time:\n%s", strings.Join(seconds, "\n"))
	log, err := os.ReadFile(filepath.Join(logs, strconv.Itoa(pid)))
	c.must(err)
	for line := range strings.Lines(string(log)) {
		stamp, _, _ := strings.Cut(strings.TrimPrefix(line, "time="), " ")
		if at, err := time.Parse(time.RFC3339Nano, stamp); err == nil && at.After(from) && at.Before(to) {
			c.Log(strings.TrimSuffix(line, "\n"))
		}
	}
}
