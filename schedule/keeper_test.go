package schedule_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib" // registers pgx with database/sql

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/testbed/jobtest"
	"github.com/pawl-go/pawl/internal/testbed/patience"
	"github.com/pawl-go/pawl/internal/testbed/pgtest"
	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/schedule"
)

// hours is a parser that reads every expression as "at the full hour", in UTC.
func hours(expression, zone string) (schedule.Plan, error) {
	if expression == "nonsense" {
		return schedule.Plan{}, errors.New("no expression")
	}
	return schedule.Cron(expression, zone, func(after time.Time) time.Time { return after.Truncate(time.Hour).Add(time.Hour) }), nil
}

func hourly(t *testing.T) schedule.Plan {
	t.Helper()
	plan, err := hours("0 * * * *", "UTC")
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

// A keeper is not ready while an open transaction holds one of its schedules.
func TestKeeper_ReadyOnceItsSchedulesArePut(t *testing.T) {
	t.Parallel()
	b := setup(t)
	mine := schedule.Schedule{Name: "s", Queue: "q", Kind: "k", Plan: schedule.Every(time.Hour)}
	tx, err := b.pool.Begin(t.Context())
	b.must(err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	_, err = schedule.Put(t.Context(), tx, mine)
	b.must(err)
	k, err := schedule.NewKeeper(b.pool, schedule.Config{Schedules: []schedule.Schedule{mine}})
	b.must(err)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- k.Run(ctx) }()
	patience.Blocked(b, b.pool, 1, "%schedule_put%")
	select {
	case <-k.Ready():
		t.Error("it is ready already")
	default:
	}
	b.must(tx.Commit(t.Context()))
	patience.Receive(t, "the keeper is ready", k.Ready())
	stop()
	b.must(<-done)
}

// With five keepers each tick of an interval is enqueued once, on its grid, and the handler gets
// it.
func TestKeepers_TickOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first := one[time.Time](b, "select date_trunc('milliseconds', clock_timestamp()) + interval '200 milliseconds'")
	b.put(schedule.Schedule{Name: "s", Plan: schedule.Every(100 * time.Millisecond), Missed: schedule.MissedAll, FirstAt: first}, schedule.Created)
	for range 5 {
		b.keep(schedule.Config{})
	}
	b.until("20 ticks", "select count(*) >= 20 from pawl.job")
	b.exec("update pawl.schedule set paused = true, fence = nextval('pawl.fence_seq')")
	made := b.grid("s", first, 100*time.Millisecond)
	b.untilReported(pawl.EventTicked, int64(made))
	if n := b.counters.Count(pawl.EventTicked); n != int64(made) {
		t.Errorf("%d reported, %d made", n, made)
	}
	jobs, err := jobtest.Claim(t.Context(), b.pool, "q", one[int64](b, "select w.worker_id from pawl_v1.worker_register('w') as w"), 1)
	b.must(err)
	if tick, ok := schedule.TickOf(jobs[0]); !ok || tick.Schedule != "s" || !tick.At.Equal(first) {
		t.Errorf("%+v, %v, want %v", tick, ok, first)
	}
	if tick, ok := schedule.TickOf(job.Job{}); ok {
		t.Errorf("%+v", tick)
	}
}

// After five hours without a keeper the last tick is enqueued, or all of them in order. The test
// moves the times in the rows.
func TestKeeper_MissedTicksOfCron(t *testing.T) {
	t.Parallel()
	for missed, want := range map[schedule.Missed]int{schedule.MissedLast: 1, schedule.MissedAll: 6} {
		t.Run(string(missed), func(t *testing.T) {
			t.Parallel()
			patience.Hour(t)
			b := setup(t)
			b.put(schedule.Schedule{Name: "s", Plan: hourly(t), Missed: missed}, schedule.Created)
			b.until("the next tick is the next full hour", "select s.next_at = date_trunc('hour', now()) + interval '1 hour' from pawl.schedule as s")
			b.exec("update pawl.schedule set next_at = date_trunc('hour', now()) - interval '5 hours', since_at = date_trunc('hour', now()) - interval '6 hours'")
			b.keep(schedule.Config{Cron: hours})
			b.until("the keeper has caught up", "select s.next_at > now() from pawl.schedule as s")
			if n := one[int](b, "select count(*) from pawl.job"); n != want {
				t.Errorf("%d jobs, want %d", n, want)
			}
			if !one[bool](b, "select max(j.headers ->> 'pawl-tick')::timestamptz = date_trunc('hour', now()) and array_agg(j.headers ->> 'pawl-tick' order by j.id) = array_agg(j.headers ->> 'pawl-tick' order by j.headers ->> 'pawl-tick') from pawl.job as j") {
				t.Error("the newest is not the last full hour, or they are out of order")
			}
			b.untilReported(pawl.EventTicked, int64(want))
			if missed == schedule.MissedLast {
				b.untilReported(pawl.EventTicksSkipped, 5)
			}
		})
	}
}

// An expression that was put by SQL has no next tick. A keeper enqueues the ticks since it was put.
func TestKeeper_FindsTheFirstTick(t *testing.T) {
	t.Parallel()
	patience.Hour(t)
	b := setup(t)
	b.exec(`select pawl_v1.schedule_put('new', 'q', 'k', '', '{"cron": "0 * * * *"}'), pawl_v1.schedule_put('old', 'q', 'k', '', '{"cron": "0 * * * *"}')`)
	b.exec("update pawl.schedule set since_at = date_trunc('hour', now()) - interval '1 second' where name = 'old'")
	b.keep(schedule.Config{Cron: hours})
	b.until("both have a next tick", "select count(*) = 2 from pawl.schedule as s where s.next_at = date_trunc('hour', now()) + interval '1 hour'")
	b.until("the old one has ticked", "select count(*) = 1 from pawl.job as j where j.headers ->> 'pawl-schedule' = 'old'")
	if n := one[int](b, "select count(*) from pawl.job"); n != 1 {
		t.Errorf("%d jobs, want 1", n)
	}
}

// A keeper without a parser leaves expressions to other keepers. If it cannot parse an expression,
// or a schedule is locked, it reports that and ticks the others.
func TestKeeper_OneDoesNotStopTheOthers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(`select pawl_v1.schedule_put('cron', 'q', 'k', '', '{"cron": "0 * * * *", "first_at": "2026-01-01 00:00Z"}'),
       pawl_v1.schedule_put('bad', 'q', 'k', '', '{"cron": "nonsense", "first_at": "2025-01-01 00:00Z"}'),
       pawl_v1.schedule_put('locked', 'q', 'k', '', '{"every_ms": 100, "first_at": "2025-01-01 00:00Z"}'),
       pawl_v1.schedule_put('good', 'q', 'k', '', '{"every_ms": 100}')`)
	tx, err := b.pool.Begin(t.Context())
	b.must(err)
	defer func() { _ = tx.Rollback(t.Context()) }()
	_, err = tx.Exec(t.Context(), "select from pawl.schedule as s where s.name = 'locked' for update")
	b.must(err)
	const ticked = "select count(*) >= $2 from pawl.job as j where j.headers ->> 'pawl-schedule' = $1"
	stop := b.keep(schedule.Config{})
	b.until("the good one ticks", ticked, "good", 1)
	stop()
	if n := one[int](b, "select count(*) from pawl.job as j where j.headers ->> 'pawl-schedule' in ('cron', 'bad')"); n != 0 {
		t.Errorf("a keeper without a parser has made %d ticks", n)
	}
	b.keep(schedule.Config{Cron: hours})
	b.until("the expression ticks", ticked, "cron", 1)
	was := one[int](b, "select count(*) from pawl.job as j where j.headers ->> 'pawl-schedule' = 'good'")
	b.until("the good one ticks on", ticked, "good", was+3)
	b.untilReported(pawl.EventError, 2) // the bad one, the locked one
	b.must(tx.Rollback(t.Context()))
	b.until("the locked one ticks", ticked, "locked", 1)
}

// A keeper survives an outage of the database and then enqueues the ticks that fell due.
func TestKeeper_SurvivesAnOutage(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const every = 100 * time.Millisecond
	first := one[time.Time](b, "select date_trunc('milliseconds', clock_timestamp())")
	b.put(schedule.Schedule{Name: "s", Plan: schedule.Every(every), Missed: schedule.MissedAll, FirstAt: first}, schedule.Created)
	stop := b.keep(schedule.Config{})
	b.untilReported(pawl.EventTicked, 3)
	admin, err := pgx.Connect(t.Context(), pgtest.ServerURL(t))
	b.must(err)
	defer admin.Close(t.Context())
	name := b.pool.Config().ConnConfig.Database
	b.must(pgtest.Shut(t.Context(), admin, name))
	b.untilReported(pawl.EventError, 1)
	b.must(pgtest.Reopen(t.Context(), admin, name))
	b.pool.Reset()
	back := time.Now()
	b.until("the keeper is back", "select count(*) > 0 from pawl.schedule as s where s.last_at > $1", back.Add(every))
	stop()
	b.grid("s", first, every)
}

// A keeper stops at once while it waits for a far tick. It does not start on a database without the
// schema.
func TestKeeper_StartsAndStops(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.put(schedule.Schedule{Name: "s", Plan: schedule.Every(time.Hour), FirstAt: time.Now().Add(-time.Second)}, schedule.Created)
	stop := b.keep(schedule.Config{Poll: time.Hour})
	b.until("it has looked", "select count(*) = 1 from pawl.job")
	stop() // long before the next look
	k, err := schedule.NewKeeper(poolOf(t, pgtest.URL(t, pgtest.Template{Name: "empty"})), schedule.Config{})
	b.must(err)
	if err := k.Run(t.Context()); err == nil {
		t.Error("it runs without a schema")
	}
	if _, err := schedule.NewKeeper(b.pool, schedule.Config{Poll: time.Millisecond}); !errors.Is(err, pawl.ErrArgumentInvalid) {
		t.Errorf("Poll 1ms: %v", err)
	}
}

// A sleeping keeper notices within Poll a schedule that is put, resumed or changed.
func TestKeeper_NoticesWithinPoll(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.put(schedule.Schedule{Name: "far", Plan: schedule.Every(time.Hour), FirstAt: time.Now().Add(-time.Second)}, schedule.Created)
	b.keep(schedule.Config{Poll: 100 * time.Millisecond})
	b.until("it has looked", "select count(*) = 1 from pawl.job")
	b.put(schedule.Schedule{Name: "near", Plan: schedule.Every(time.Hour), FirstAt: time.Now().Add(-time.Second)}, schedule.Created)
	b.until("the new one ticks", "select count(*) = 2 from pawl.job")
	if late := one[float64](b, "select extract(epoch from j.created_at - s.created_at) from pawl.job as j, pawl.schedule as s where s.name = 'near'"); late > 2 {
		t.Errorf("noticed after %.3f s", late)
	}
}

// Put returns an error that names what is wrong. It works in a transaction of pgx and database/sql.
func TestPut(t *testing.T) {
	t.Parallel()
	b := setup(t)
	every := schedule.Every(time.Minute)
	for name, c := range map[string]struct {
		s    schedule.Schedule
		want error
	}{
		"no plan":          {schedule.Schedule{Name: "s", Queue: "q", Kind: "k"}, pawl.ErrArgumentInvalid},
		"short":            {schedule.Schedule{Name: "s", Queue: "q", Kind: "k", Plan: schedule.Every(99 * time.Millisecond)}, pawl.ErrArgumentInvalid},
		"long":             {schedule.Schedule{Name: "s", Queue: "q", Kind: "k", Plan: schedule.Every(366 * 24 * time.Hour)}, pawl.ErrArgumentInvalid},
		"odd":              {schedule.Schedule{Name: "s", Queue: "q", Kind: "k", Plan: schedule.Every(time.Second + 1)}, pawl.ErrArgumentInvalid},
		"no name":          {schedule.Schedule{Queue: "q", Kind: "k", Plan: every}, pawl.ErrScopeInvalid},
		"long name":        {schedule.Schedule{Name: strings.Repeat("s", 201), Queue: "q", Kind: "k", Plan: every}, pawl.ErrScopeInvalid},
		"no kind":          {schedule.Schedule{Name: "s", Queue: "q", Plan: every}, pawl.ErrScopeInvalid},
		"two payloads":     {schedule.Schedule{Name: "s", Queue: "q", Kind: "k", Plan: every, Payload: []byte("1"), Value: 1}, pawl.ErrArgumentInvalid},
		"no JSON":          {schedule.Schedule{Name: "s", Queue: "q", Kind: "k", Plan: every, Value: func() {}}, pawl.ErrArgumentInvalid},
		"unknown missed":   {schedule.Schedule{Name: "s", Queue: "q", Kind: "k", Plan: every, Missed: "some"}, pawl.ErrArgumentInvalid},
		"priority too low": {schedule.Schedule{Name: "s", Queue: "q", Kind: "k", Plan: every, Priority: 5}, pawl.ErrArgumentInvalid},
	} {
		if got, err := schedule.Put(t.Context(), b.pool, c.s); !errors.Is(err, c.want) {
			t.Errorf("%s: %s, %v, want %v", name, got, err, c.want)
		}
	}
	full := schedule.Schedule{Name: "s", Queue: "q", Kind: "k", Plan: hourly(t), Value: map[string]int{"n": 1}, Priority: 1, MaxAttempts: 3,
		Headers: map[string]any{"tenant": "acme"}, Lane: "s", LanePolicy: job.LaneSkip}
	db, err := sql.Open("pgx", b.url)
	b.must(err)
	defer db.Close()
	for _, commit := range []bool{false, true} {
		tx, err := db.BeginTx(t.Context(), nil)
		b.must(err)
		if got, err := schedule.Put(t.Context(), pawl.SQLTx(tx), full); err != nil || got != schedule.Created {
			t.Fatalf("%s, %v", got, err)
		}
		if commit {
			b.must(tx.Commit())
		} else {
			b.must(tx.Rollback())
		}
	}
	if got, err := schedule.Put(t.Context(), b.pool, full); err != nil || got != schedule.Unchanged {
		t.Errorf("%s, %v", got, err)
	}
	full.Missed = schedule.MissedAll
	if got, err := schedule.Put(t.Context(), b.pool, full); err != nil || got != schedule.Changed {
		t.Errorf("%s, %v", got, err)
	}
	want := `{"n":1} {"lane": "s", "headers": {"tenant": "acme"}, "priority": 1, "lane_policy": "skip", "max_attempts": 3} all`
	if got := one[string](b, "select convert_from(s.payload, 'UTF8') || ' ' || s.options || ' ' || s.missed from pawl.schedule as s"); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	full.Name, full.FirstAt = "earlier", time.Date(2026, 1, 1, 0, 30, 0, 0, time.UTC)
	if _, err := schedule.Put(t.Context(), b.pool, full); err != nil {
		t.Fatal(err)
	}
	if next := one[time.Time](b, "select s.next_at from pawl.schedule as s where s.name = 'earlier'"); !next.Equal(full.FirstAt.Add(30 * time.Minute)) {
		t.Errorf("next %v", next)
	}
	later := one[time.Time](b, "select date_trunc('hour', now()) + interval '5 hours'")
	full.Name, full.FirstAt = "later", later
	if _, err := schedule.Put(t.Context(), b.pool, full); err != nil {
		t.Fatal(err)
	}
	if next := one[time.Time](b, "select s.next_at from pawl.schedule as s where s.name = 'later'"); !next.Equal(later) {
		t.Errorf("next %v, want %v", next, later)
	}
}

// Put refuses a Lane that is not UTF-8: JSON replaces each such octet by the same letter, which
// would join two lanes.
func TestPut_RefusesWhatIsNoUTF8(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, s := range []schedule.Schedule{{Lane: "a\xff"}, {Headers: map[string]any{"x": "\xff"}}, {Headers: map[string]any{"\xff": 1}}} {
		s.Name, s.Queue, s.Kind, s.Plan = "s", "q", "k", schedule.Every(time.Hour)
		if stored, err := schedule.Put(t.Context(), b.pool, s); !pawl.IsFinal(err) {
			t.Errorf("%+v: %s, %v", s, stored, err)
		}
	}
}

// A keeper puts the schedules of its configuration at each start, and waits for a locked one.
func TestKeeper_PutsItsSchedules(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := schedule.Schedule{Name: "s", Plan: schedule.Every(time.Hour), Queue: "q", Kind: "k"}
	if _, err := schedule.NewKeeper(b.pool, schedule.Config{Schedules: []schedule.Schedule{{Name: "s", Queue: "q", Kind: "k"}}}); err == nil {
		t.Error("a schedule without a plan is taken")
	}
	b.keep(schedule.Config{Schedules: []schedule.Schedule{s}})
	b.until("the schedule is there", "select count(*) = 1 from pawl.schedule as s where s.name = 's' and s.kind = 'k'")
	next := one[time.Time](b, "select s.next_at from pawl.schedule as s")

	tx, err := b.pool.Begin(t.Context())
	b.must(err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	_, err = tx.Exec(t.Context(), "select 1 from pawl.schedule for update")
	b.must(err)
	s.Kind = "other"
	b.keep(schedule.Config{Schedules: []schedule.Schedule{s}})
	b.untilReported(pawl.EventError, 1)
	b.must(tx.Rollback(t.Context()))
	b.until("the schedule is changed", "select count(*) = 1 from pawl.schedule as s where s.name = 's' and s.kind = 'other'")
	if again := one[time.Time](b, "select s.next_at from pawl.schedule as s"); !again.Equal(next) {
		t.Errorf("the next tick moved from %v to %v", next, again)
	}
}

// During a deploy two versions of a program put different plans at each start, whose FirstAt has
// passed. No moment ticks twice, even after its key is purged, and ticks never go back.
func TestKeepers_TwoPlansInTurn(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first := one[time.Time](b, "select date_trunc('milliseconds', clock_timestamp()) - interval '10 seconds'")
	version := func(every time.Duration) schedule.Config {
		return schedule.Config{Schedules: []schedule.Schedule{{Name: "s", Queue: "q", Kind: "k", Plan: schedule.Every(every), Missed: schedule.MissedAll, FirstAt: first}}}
	}
	for range 5 {
		for _, every := range []time.Duration{100 * time.Millisecond, 150 * time.Millisecond} {
			made := one[int](b, "select count(*) from pawl.job")
			defer b.keep(version(every))()
			b.until("it ticks by this plan", "select (select count(*) from pawl.job) > $2 + 2 and exists (select from pawl.schedule as s where s.every_ms = $1)", every.Milliseconds(), made)
			b.exec("delete from pawl.job_key")
		}
	}
	if n := one[int](b, `select count(*) from (
  select (j.headers ->> 'pawl-tick')::timestamptz as at, lag((j.headers ->> 'pawl-tick')::timestamptz) over (order by j.id) as before from pawl.job as j) as t
 where t.at <= t.before`); n != 0 {
		t.Errorf("%d ticks came again, or out of order", n)
	}
}

// A keeper that polls once an hour, beside a worker, ticks soon after any client put or resumed a
// schedule. Without the worker's presence it waits for its next poll.
func TestKeeper_LearnsOfSchedules(t *testing.T) {
	t.Parallel()
	b := setup(t)
	worker, err := job.NewWorker(b.pool, job.Config{Queues: []job.Queue{{Name: "q"}}, Poll: time.Hour, Handlers: []job.Handler{
		job.Handle("k", func(context.Context, job.Task[[]byte]) error { return nil })}})
	b.must(err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- worker.Run(ctx) }()
	defer func() { cancel(); <-done }()
	b.until("the worker listens", "select exists (select from pg_locks as l where l.classid = 1885435767 and l.database = (select d.oid from pg_database as d where d.datname = current_database()))")
	b.keep(schedule.Config{Poll: time.Hour, Cron: hours})
	b.exec("select pawl_v1.schedule_put('far', 'q', 'k', '', '{\"cron\": \"0 * * * *\"}')")
	b.until("the keeper has looked", "select s.next_at is not null from pawl.schedule as s where s.name = 'far'")

	const ticked = "select count(*) = 1 from pawl.schedule as s where s.name = $1 and s.last_at is not null"
	learns := func(what, statement, question string, args ...any) {
		t.Helper()
		b.exec(statement)
		b.until(what, question, args...)
	}
	learns("put", `select pawl_v1.schedule_put('due', 'q', 'k', '', '{"every_ms": 3600000, "first_at": "2026-01-01"}')`, ticked, "due")
	learns("put a cron", `select pawl_v1.schedule_put('cron', 'q', 'k', '', '{"cron": "0 * * * *"}')`, "select s.next_at is not null from pawl.schedule as s where s.name = 'cron'")
	b.exec("select pawl_v1.schedule_pause('cron', 'ann', 'why'); ")
	b.exec("update pawl.schedule set next_at = null where name = 'cron'")
	learns("resume", "select pawl_v1.schedule_resume('cron', 'ann', 'why')", "select s.next_at is not null from pawl.schedule as s where s.name = 'cron'")
}
