package job_test

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/testbed/patience"
	"github.com/pawl-go/pawl/internal/testbed/pgtest"
	"github.com/pawl-go/pawl/internal/testbed/postgres"
	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/migrate"
)

// asleep counts the queues of this database with a worker announced as asleep.
const asleep = `select count(*) from pg_locks as l where l.locktype = 'advisory' and l.classid = 1885435767 and l.granted
 and l.database = (select d.oid from pg_database as d where d.datname = current_database())`

func (c *crew) untilAnnounced(queues int) {
	c.Helper()
	c.until("not announced", asleep, queues)
}

// wakes runs enqueue, which enqueues a job for an idle worker, until a notification woke the
// worker. An idle worker also polls, rarely, so a poll may find the job first. If polls find it
// five times in a row, no notification came. wakes returns how often it ran enqueue.
func (c *crew) wakes(what string, enqueue func()) (times int) {
	c.Helper()
	return c.wakesAfter(what, func() {}, enqueue)
}

// wakesAfter is wakes, but calls prepare before each enqueue. prepare may wake the worker.
func (c *crew) wakesAfter(what string, prepare, enqueue func()) (times int) {
	c.Helper()
	for times = 1; times <= 5; times++ {
		prepare()
		c.untilTrue("a worker is announced", func() bool { return one[int](c, asleep) > 0 })
		woken := c.saw(pawl.EventWoken, "job.claim")
		enqueue()
		c.untilDone()
		if c.saw(pawl.EventWoken, "job.claim") > woken {
			return times
		}
	}
	c.Fatalf("%s: polls found the job five times, and no notification did", what)
	return 0
}

func (c *crew) psql(statement string) {
	c.Helper()
	out, err := exec.CommandContext(c.Context(), "psql", "-XAtc", statement, c.url).CombinedOutput()
	if err != nil {
		c.Fatalf("psql: %v: %s", err, out)
	}
}

// A worker that polls once an hour finds each job at once, wherever it was enqueued: by Go, another
// language or psql, one or many, in a transaction or in a handler.
func TestWake_FromEverywhere(t *testing.T) {
	t.Parallel()
	c := setupCrew(t)
	c.config.Poll = time.Hour
	c.hire()
	doors := map[string]func(){ // each enqueues one job, except EnqueueMany
		"Enqueue": func() { c.enqueueMany(1, job.Request{}) },
		"EnqueueMany": func() {
			_, err := job.EnqueueMany(t.Context(), c.pool, []job.Request{{Queue: "q", Kind: "k"}, {Queue: "q", Kind: "k"}})
			c.must(err)
		},
		"a lane": func() { c.enqueueMany(1, job.Request{Lane: "l"}) },
		"a transaction": func() {
			c.must(pgx.BeginFunc(t.Context(), c.pool, func(tx pgx.Tx) error { c.enqueueIn(tx, job.Request{Queue: "q", Kind: "k"}); return nil }))
		},
		"psql": func() { c.psql("select pawl_v1.job_enqueue('q', 'k', '')") },
		"a serializable transaction": func() {
			c.psql("begin isolation level serializable; select pawl_v1.job_enqueue('q', 'k', ''); commit")
		},
	}
	jobs := 0
	for name, enqueue := range doors {
		times := c.wakes(name, enqueue)
		if jobs += times; name == "EnqueueMany" {
			jobs += times
		}
	}
	c.wantEffects(jobs)
}

// Sessions have short timeouts for statements and locks, and the pool cancels on the server. So the
// wait for notifications is interrupted often.
func TestWake_ImpatientSessions(t *testing.T) {
	t.Parallel()
	c := setupCrew(t)
	settings := c.pool.Config() // the test's own statements are patient
	maps.Copy(settings.ConnConfig.RuntimeParams, map[string]string{"lock_timeout": "1", "statement_timeout": "20000",
		"idle_session_timeout": "20000", "idle_in_transaction_session_timeout": "20000"})
	settings.ConnConfig.BuildContextWatcherHandler = func(conn *pgconn.PgConn) ctxwatch.Handler {
		return &pgconn.CancelRequestContextWatcherHandler{Conn: conn, DeadlineDelay: time.Hour}
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), settings)
	c.must(err)
	t.Cleanup(pool.Close)
	c.config.Poll = time.Hour
	c.run(c.worker(pool))
	for range 20 { // if the end of a wait waited for the server, it would take an hour
		c.untilAnnounced(1)
		c.enqueueMany(1, job.Request{})
		c.untilDone()
	}
	times := c.wakes("impatient", func() { c.enqueueMany(1, job.Request{}) })
	if n := c.saw(pawl.EventError, "worker.presence"); n != 0 {
		t.Errorf("the presence connection was lost %d times", n)
	}
	c.wantEffects(20 + times)
}

// A worker of many queues sleeps and wakes in each queue separately. Two queues whose locks share a
// number wake each other. No job is missed, and no announcement is left over.
func TestWake_ManyQueues(t *testing.T) {
	t.Parallel()
	c := setupCrew(t)
	config := c.complete()
	config.Poll, config.Queues = time.Hour, nil
	// They share a number: see TestWorkerAsleep_QueuesOfOneNumber.
	names := []string{"q7169", "q122757"}
	for n := range 40 {
		names = append(names, fmt.Sprintf("many %d", n))
	}
	for _, name := range names {
		config.Queues = append(config.Queues, job.Queue{Name: name, Concurrency: 1})
	}
	config.Handlers = []job.Handler{job.Handle("k", func(ctx context.Context, j job.Task[[]byte]) error {
		_, err := c.pool.Exec(ctx, "insert into effect values ($1)", j.ID)
		return err
	})}
	w, err := job.NewWorker(c.pool, config)
	c.must(err)
	c.run(w)
	times := 0
	for range 2 {
		for n := range 10 {
			name := names[(1+n)%10] // the first two are not adjacent: each wakes the other
			times += c.wakesAfter(name, func() { c.untilAnnounced(len(names) - 1) }, func() {
				_, err := job.Enqueue(t.Context(), c.pool, job.Request{Queue: name, Kind: "k"})
				c.must(err)
			})
		}
	}
	c.untilAnnounced(len(names) - 1)
	c.wantEffects(times)
}

// A worker that dies or freezes while it is announced does not delay jobs. The server ends the
// announcement of a dead worker. A notification for a frozen worker wakes all listening workers.
func TestWake_BesideTheDeadAndTheFrozen(t *testing.T) {
	t.Parallel()
	for name, signal := range map[string]syscall.Signal{"SIGKILL": syscall.SIGKILL, "SIGSTOP": syscall.SIGSTOP} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := setupCrew(t, `create sequence asked;
alter function pawl_v1.worker_asleep(text[]) rename to asleep_itself;
create function pawl_v1.worker_asleep(p_queues text[]) returns table (outcome text, queue text, signal text, detail jsonb) language sql as $$
select s.* from pawl_v1.asleep_itself(p_queues) as s, nextval('public.asked') $$`)
			o := order{Form: "simple", Lease: time.Minute, Quiet: true, Session: "first", Poll: time.Hour}
			first := c.process(o)
			c.untilAnnounced(1)
			c.config.Poll = time.Hour
			c.hire()
			c.until("not both present", "select count(*) from pawl.worker where presence", 2)
			c.untilTrue("the second has asked, and found the first announced", func() bool { return one[bool](c, "select last_value > 1 from asked") })
			first.signal(signal)
			if signal == syscall.SIGSTOP {
				first.untilStopped()
			}
			// Either the frozen worker is announced, or the second, once it has asked again.
			c.wantEffects(c.wakes(name, func() { c.enqueueMany(1, job.Request{}) }))
		})
	}
}

// The presence connection of a sleeping worker is cut. Polls find the jobs that arrive meanwhile.
// When the connection is back, the worker is announced again, whether jobs arrived or not.
func TestWake_AfterTheConnectionWasCut(t *testing.T) {
	t.Parallel()
	c := setupCrew(t)
	c.config.Poll = 300 * time.Millisecond
	c.hire()
	for round := range 3 {
		c.untilAnnounced(1)
		c.exec("select pg_terminate_backend(l.pid, 10000) from pg_locks as l where l.classid = 1885435767 and l.database = (select d.oid from pg_database as d where d.datname = current_database())")
		c.wantCount(asleep, 0)
		if round > 0 {
			c.enqueueMany(1, job.Request{})
			c.untilDone()
		}
	}
	c.wantEffects(2 + c.wakes("back", func() { c.enqueueMany(1, job.Request{}) }))
}

// After an outage or a failover, a worker is announced in its new session.
func TestWake_AfterAnOutage(t *testing.T) {
	t.Parallel()
	c := setupCrew(t)
	c.config.Poll = 300 * time.Millisecond
	c.hire()
	c.untilAnnounced(1)
	admin := adminOf(t)
	u, err := url.Parse(c.url)
	c.must(err)
	database := strings.TrimPrefix(u.Path, "/")
	c.must(pgtest.Shut(t.Context(), admin, database))
	c.untilTrue("the worker has noticed", func() bool { return c.counters.Count(pawl.EventError) > 0 })
	c.must(pgtest.Reopen(t.Context(), admin, database))
	c.pool.Reset()
	c.wantEffects(c.wakes("after the outage", func() { c.enqueueMany(1, job.Request{}) }))
}

// After a server crash, which frees all locks, workers are announced again, and enqueues wake them.
func TestWake_AfterACrashOfTheServer(t *testing.T) {
	t.Parallel()
	server, err := postgres.Start(t.Context(), postgres.Options{RAM: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Stop() })
	c := setupCrewOn(t, server.URL("postgres"))
	conn, err := pgx.Connect(t.Context(), c.url)
	c.must(err)
	_, err = migrate.Up(t.Context(), conn, nil)
	c.must(err)
	c.exec(effects)
	c.config.Poll = 300 * time.Millisecond
	c.hire()
	c.untilAnnounced(1)
	witness, err := pgx.Connect(t.Context(), c.url)
	c.must(err)
	// The server restarts if one of its processes is killed.
	c.must(syscall.Kill(int(conn.PgConn().PID()), syscall.SIGKILL))
	c.untilTrue("the server has ended all sessions", func() bool { return witness.Ping(t.Context()) != nil })
	c.pool.Reset()
	c.untilTrue("the server is back", func() bool { return c.pool.Ping(t.Context()) == nil })
	c.untilAnnounced(1)
	c.wantEffects(c.wakes("after the crash", func() { c.enqueueMany(1, job.Request{}) }))
}

// While a frozen worker is announced, enqueues notify. This ends when its lease is over and another
// worker, of any queue, has swept. When the frozen worker continues, it is announced again.
func TestWake_AFrozenWorkerIsNotAnnouncedBeyondItsLease(t *testing.T) {
	t.Parallel()
	c := setupCrew(t)
	const announced = asleep + " and l.objid = pawl_v1._wake_key('q')::oid"
	// If this process stalls past its lease, only a transactional form has one effect a job.
	frozen := c.process(order{Form: "transactional", Lease: 2 * time.Second, Quiet: true, Session: "frozen"})
	c.until("not announced", announced, 1)
	conn, err := pgx.Connect(t.Context(), c.url)
	c.must(err)
	defer conn.Close(context.Background())
	_, err = conn.Exec(t.Context(), "listen pawl_jobs")
	c.must(err)
	notifies := func() bool {
		c.enqueueMany(1, job.Request{})
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		_, err := conn.WaitForNotification(ctx)
		return err == nil
	}
	frozen.signal(syscall.SIGSTOP)
	frozen.untilStopped()
	if !notifies() {
		t.Error("within its lease it is announced: an enqueue did not notify")
	}
	config := c.complete()
	config.Queues = []job.Queue{{Name: "other", Concurrency: 1}}
	w, err := job.NewWorker(c.pool, config)
	c.must(err)
	c.run(w)
	c.until("still announced", announced, 0)
	for range 5 {
		if notifies() {
			t.Error("beyond its lease an enqueue notified")
		}
	}
	frozen.signal(syscall.SIGCONT)
	c.untilDone()
	c.until("not announced again", announced, 1)
	c.wantEffects(6)
}

// An enqueue in a long transaction wakes the worker at its commit, if the worker slept before. If
// it falls asleep after the enqueue, the next poll finds the job, or a kick wakes it.
func TestWake_OpenTransactions(t *testing.T) {
	t.Parallel()
	c := setupCrew(t)
	c.config.Poll = time.Hour
	release := make(chan struct{})
	c.concurrency = 1
	c.handlers = []job.Handler{inTx("k", apply), job.Handle("hold", func(context.Context, job.Task[[]byte]) error { <-release; return nil })}
	c.hire()
	early := c.wakes("it slept before", func() {
		tx := c.begin()
		c.enqueueIn(tx, job.Request{Queue: "q", Kind: "k"})
		patience.Elapse(300 * time.Millisecond)
		c.must(tx.Commit(t.Context()))
	})

	late := c.wakesAfter("a kick", func() {
		c.enqueue(job.Request{Queue: "q", Kind: "hold"})
		c.until("not held", "select count(*) from pawl.job where status = 'processing'", 1)
		tx := c.begin()
		c.enqueueIn(tx, job.Request{Queue: "q", Kind: "k"}) // the worker is awake
		release <- struct{}{}
		c.untilAnnounced(1)
		c.must(tx.Commit(t.Context()))
	}, func() { job.Kick(c.pool, "q") })
	c.wantEffects(early + late)
}

// A worker is woken in vain if its queue is paused or the jobs are of other kinds. The pauses
// before it is announced again grow, so that few enqueues notify.
func TestWake_InVainIsRare(t *testing.T) {
	t.Parallel()
	c := setupCrew(t)
	c.config.Poll = 100 * time.Millisecond
	c.hire()
	c.untilAnnounced(1)
	conn, err := pgx.Connect(t.Context(), c.url)
	c.must(err)
	defer conn.Close(context.Background())
	_, err = conn.Exec(t.Context(), "listen pawl_jobs")
	c.must(err)
	heard, announced := 0, 0
	var all sync.WaitGroup
	all.Go(func() {
		// On a busy machine several enqueues may notify for one announcement.
		for last := (time.Time{}); ; last = time.Now() {
			if n, err := conn.WaitForNotification(t.Context()); err != nil || n.Payload == "the last" {
				return
			}
			heard++
			if time.Since(last) > 30*time.Millisecond {
				announced++
			}
		}
	})
	enqueued := 0
	patience.Watch(6*time.Second, func() {
		_, err := job.Enqueue(t.Context(), c.pool, job.Request{Queue: "q", Kind: "other"})
		c.must(err)
		enqueued++
	})
	c.exec("notify pawl_jobs, 'the last'")
	all.Wait()
	t.Logf("%d enqueues, %d notifications of %d announcements", enqueued, heard, announced)
	if announced > 40 || heard > enqueued/4 {
		t.Errorf("%d of %d enqueues notified, of %d announcements", heard, enqueued, announced)
	}
}

// untilBetweenClaims waits until a claim has just ended and a long pause begins. The pauses double,
// so the third one is long. After a fixed time instead, each enqueue could meet a slow poll.
func (c *crew) untilBetweenClaims() {
	c.Helper()
	ended := func() int { return one[int](c, "select last_value from public.ended_claims") }
	third := ended() + 3
	c.untilTrue("three claims have ended", func() bool { return ended() >= third })
}

// A slow claim runs in the background. A notification whose job it finds was not in vain.
func TestWake_SlowClaims(t *testing.T) {
	t.Parallel()
	c := setupCrew(t, `alter function pawl_v1.job_claim(text, bigint, int, jsonb) rename to job_claim_itself;
create function pawl_v1.job_claim(p_queue text, p_worker bigint, p_limit int default 25, p_options jsonb default '{}')
returns table (id bigint, fence bigint, kind text, payload bytea, headers jsonb, attempts int, max_attempts int, crashes int, priority int, created_at timestamptz,
  available_at timestamptz, detail jsonb) language plpgsql as $$
begin
  return query select * from pawl_v1.job_claim_itself(p_queue, p_worker, p_limit, p_options);
  perform pg_sleep(0.03);
  perform nextval('public.ended_claims');
end $$;
create sequence public.ended_claims`)
	c.config.Poll, c.concurrency = time.Hour, 8
	c.hire()
	times := 0
	for range 6 {
		times += c.wakes("a slow claim", func() {
			c.untilBetweenClaims()
			c.enqueueMany(1, job.Request{})
		})
	}
	c.wantEffects(times)
}

// A claim in the background ends after the claims that follow it. The job that it finds still
// counts as found after the notification that preceded it.
func TestWake_SlowClaimInTheBackground(t *testing.T) {
	t.Parallel()
	// A background claim takes one slot and claims first, but its reply comes last.
	c := setupCrew(t, `alter function pawl_v1.job_claim(text, bigint, int, jsonb) rename to job_claim_itself;
create function pawl_v1.job_claim(p_queue text, p_worker bigint, p_limit int default 25, p_options jsonb default '{}')
returns table (id bigint, fence bigint, kind text, payload bytea, headers jsonb, attempts int, max_attempts int, crashes int, priority int, created_at timestamptz,
  available_at timestamptz, detail jsonb) language plpgsql as $$
begin
  if p_limit > 1 then
    perform pg_sleep(0.06);
  end if;
  return query select * from pawl_v1.job_claim_itself(p_queue, p_worker, p_limit, p_options);
  if p_limit = 1 then
    perform pg_sleep(0.4);
  else
    perform nextval('public.ended_claims');
  end if;
end $$;
create sequence public.ended_claims`)
	c.config.Poll, c.concurrency = time.Hour, 8
	c.hire()
	times := 0
	for range 3 {
		times += c.wakes("a slow claim", func() {
			c.untilBetweenClaims()
			c.enqueueMany(1, job.Request{})
		})
	}
	c.wantEffects(times)
}

// Without a presence connection no enqueue notifies, and polls find the jobs.
func TestWake_WithoutPresence(t *testing.T) {
	t.Parallel()
	c := setupCrew(t)
	c.config.Presence.Off = true
	c.hire()
	conn, err := pgx.Connect(t.Context(), c.url)
	c.must(err)
	defer conn.Close(context.Background())
	_, err = conn.Exec(t.Context(), "listen pawl_jobs")
	c.must(err)
	patience.Watch(time.Second, func() { c.wantCount(asleep, 0) })
	c.enqueueMany(5, job.Request{})
	job.Kick(c.pool, "q")
	c.untilDone()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if n, err := conn.WaitForNotification(ctx); err == nil {
		t.Errorf("heard %+v", n)
	}
	c.wantEffects(5)
}

// A busy worker withdraws its announcement, because an enqueue would wake no other worker.
func TestWake_AWorkingWorkerIsAwake(t *testing.T) {
	t.Parallel()
	c := setupCrew(t)
	release := make(chan struct{})
	c.handlers = []job.Handler{job.Handle("k", func(context.Context, job.Task[[]byte]) error { <-release; return nil })}
	c.config.Poll, c.concurrency = 50*time.Millisecond, 1
	c.hire()
	c.untilAnnounced(1)
	c.enqueueMany(1, job.Request{StartIn: time.Second})
	c.wantCount(asleep, 1)
	c.until("not running", "select count(*) from pawl.job where status = 'processing'", 1)
	c.until("still announced", asleep, 0)
	close(release)
	c.untilAnnounced(1)
}

// A stopping worker withdraws its announcement at once, even while its handlers run.
func TestWake_AStoppingWorkerIsAwake(t *testing.T) {
	t.Parallel()
	c := setupCrew(t)
	started, release := make(chan struct{}), make(chan struct{})
	config := c.complete()
	config.Queues = []job.Queue{{Name: "q", Concurrency: 1}, {Name: "slow", Concurrency: 1}}
	config.Handlers = []job.Handler{job.Handle("k", func(context.Context, job.Task[[]byte]) error { close(started); <-release; return nil })}
	w, err := job.NewWorker(c.pool, config)
	c.must(err)
	stop := c.run(w)
	c.untilAnnounced(2)
	_, err = job.Enqueue(t.Context(), c.pool, job.Request{Queue: "slow", Kind: "k"})
	c.must(err)
	<-started
	ended := make(chan struct{})
	go func() { stop(); close(ended) }()
	c.until("still announced", asleep, 0)
	close(release)
	<-ended
	if c.counters.Count(pawl.EventError) != 0 {
		t.Error("it was no error")
	}
}
