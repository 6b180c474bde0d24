package schematest_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/pawl-go/pawl/internal/testbed/patience"
)

const (
	hourly  = `select p.outcome from pawl_v1.schedule_put('s', 'q', 'k', 'payload', '{"every_ms": 3600000}') as p`
	cronly  = `select p.outcome, p.next_at is null from pawl_v1.schedule_put('s', 'q', 'k', 'payload', '{"cron": "0 * * * *"}') as p`
	tickS   = "select t.outcome, t.enqueued, t.next_at > now(), coalesce(t.detail ->> 'skipped', 'none') from pawl_v1.schedule_tick('s', (select s.fence from pawl.schedule as s)) as t"
	ticks   = "select j.headers ->> 'pawl-tick' from pawl.job as j order by j.id"
	isDue   = "update pawl.schedule set next_at = '2026-01-01 00:00Z', since_at = '2025-12-31 23:00Z'"
	aVerb   = "select o.outcome, o.detail::text from pawl_v1.schedule_%s('%s', 'ann', 'why') as o"
	nextIs  = "select to_char(s.next_at at time zone 'UTC', 'YYYY-MM-DD HH24:MI') from pawl.schedule as s"
	gridOf  = "select count(*) from pawl.schedule as s where s.next_at > now() and s.next_at <= now() + interval '1 hour' and extract(epoch from s.next_at)::bigint % 3600 = 0"
	cronTik = "select t.outcome, t.enqueued from pawl_v1.schedule_tick('s', (select s.fence from pawl.schedule as s), %s, %s) as t"
)

// The job of a tick has the schedule's payload and options, and contains the schedule's name and
// the tick.
func TestSchedule_TickIsAJob(t *testing.T) {
	t.Parallel()
	patience.Hour(t)
	b := setup(t, `select pawl_v1.schedule_put('s', 'q', 'k', 'payload', '{"every_ms": 3600000, "first_at": "2026-01-01 00:00Z",
  "priority": 1, "max_attempts": 3, "headers": {"tenant": "acme"}, "lane": "one at a time"}');`)
	b.is(tickS, "ticked 1 true "+b.main.Do("select floor(extract(epoch from now() - '2026-01-01 00:00Z') / 3600)::bigint"))
	b.is(`select j.queue, j.kind, convert_from(j.payload, 'UTF8'), j.priority, j.max_attempts, j.headers ->> 'tenant', j.headers ->> 'pawl-schedule', l.name,
       j.headers ->> 'pawl-tick' = to_char(date_trunc('hour', now() at time zone 'UTC'), 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')
  from pawl.job as j join pawl.lane as l on l.id = j.lane_id`, `q k payload 1 3 acme s one at a time true`)
	b.is("select k.key = 'schedule/s/' || (j.headers ->> 'pawl-tick') from pawl.job_key as k join pawl.job as j on j.id = k.job_id", "true")
	b.is(tickS, "not_due 0 true none")
	b.is("select t.outcome from pawl_v1.schedule_tick('s', 0) as t", "superseded")
	b.is("select t.outcome from pawl_v1.schedule_tick('nobody', 0) as t", "absent")
	b.is(gridOf, "1")
}

// T68: putting a schedule again, as every start of a program does, does not restart its interval.
func TestT68_PutAgainKeepsTheNextTick(t *testing.T) {
	t.Parallel()
	b := setup(t, "")
	b.is(hourly, "created")
	b.do("update pawl.schedule set next_at = now() + interval '1 minute'")
	next := b.main.Do("select s.next_at::text, s.fence from pawl.schedule as s")
	for range 3 {
		b.is(hourly, "unchanged")
	}
	b.is("select s.next_at::text, s.fence from pawl.schedule as s", next)
	b.is("select p.outcome from pawl_v1.schedule_put('s', 'q2', 'k2', 'other', '{\"every_ms\": 3600000, \"missed\": \"all\"}') as p", "changed")
	b.is("select s.next_at::text from pawl.schedule as s", strings.Join(strings.Fields(next)[:2], " "))
	b.is("select s.queue, s.kind, s.missed from pawl.schedule as s", "q2 k2 all")
}

// A tick that is due when the plan changes is still enqueued, and the new plan continues from
// there.
func TestSchedule_AnotherPlanKeepsWhatIsDue(t *testing.T) {
	t.Parallel()
	b := setup(t, hourly)
	b.is("select p.outcome, p.next_at between now() + interval '1 minute' and now() + interval '3 minutes' from pawl_v1.schedule_put('s', 'q', 'k', '', '{\"every_ms\": 120000}') as p", "changed true")
	b.do("update pawl.schedule set next_at = now() - interval '30 seconds'")
	b.is("select p.outcome, p.next_at < now() from pawl_v1.schedule_put('s', 'q', 'k', '', '{\"every_ms\": 7200000}') as p", "changed true")
	b.is(tickS, "ticked 1 true none")
	b.is("select s.next_at between now() + interval '119 minutes' and now() + interval '2 hours' from pawl.schedule as s", "true")
}

// A changed plan starts after now, with any first_at. Past ticks are not repeated although their
// keys are purged, and neither are ticks that a resume dropped.
func TestSchedule_AnotherPlanRepeatsNoTick(t *testing.T) {
	t.Parallel()
	put := func(plan string) string {
		return `select p.outcome, coalesce(p.next_at > now(), true) from pawl_v1.schedule_put('s', 'q', 'k', '', '{` + plan + `, "missed": "all"}') as p`
	}
	const (
		daily  = `"every_ms": 86400000, "first_at": "2026-01-01 06:00Z"`
		halves = `"every_ms": 43200000, "first_at": "2026-01-01 06:00Z"`
		utc    = `"cron": "0 0 1 * *", "first_at": "2026-01-01"`
		london = `"cron": "0 0 1 * *", "time_zone": "Europe/London", "first_at": "2026-01-01"`
		purged = "delete from pawl.job_key"
	)
	t.Run("interval", func(t *testing.T) {
		t.Parallel()
		b := setup(t, "")
		b.is(put(daily), "created false")
		b.do(tickS)
		b.do(purged)
		b.is(put(halves), "changed true")
		// The new plan has its own grid.
		b.is("select extract(epoch from s.next_at)::bigint % 43200 = 21600, s.next_at <= now() + interval '12 hours' from pawl.schedule as s", "true true")
		b.is(tickS, "not_due 0 true none")
	})
	t.Run("cron", func(t *testing.T) {
		t.Parallel()
		b := setup(t, "")
		b.is(put(utc), "created false")
		b.is(fmt.Sprintf(cronTik, "'{2026-01-01}'", "'2126-01-01'"), "ticked 1")
		b.do(purged)
		b.is(put(london), "changed true")
		b.is("select s.next_at is null, s.since_at between now() - interval '1 minute' and now() from pawl.schedule as s", "true true")
		b.is(fmt.Sprintf(cronTik, "'{2026-01-01}'", "'2126-01-01'"), "P4004")
	})
	t.Run("dropped by a resume", func(t *testing.T) {
		t.Parallel()
		b := setup(t, "")
		b.is(put(daily), "created false")
		b.do(fmt.Sprintf(aVerb, "pause", "s"))
		b.do(fmt.Sprintf(aVerb, "resume", "s"))
		b.is(put(halves), "changed true")
		b.is(ticks, "")
	})
	t.Run("the clock went back", func(t *testing.T) {
		t.Parallel()
		for plan, next := range map[string]string{halves: "true", london: "null"} {
			b := setup(t, "")
			b.do(put(daily))
			b.do("update pawl.schedule set last_at = now() + interval '3 days', since_at = now() + interval '3 days', next_at = now() + interval '4 days'")
			b.do(put(plan))
			b.is("select coalesce((s.next_at > s.last_at)::text, 'null'), s.since_at >= s.last_at from pawl.schedule as s", next+" true")
			b.do(fmt.Sprintf(aVerb, "pause", "s"))
			b.do(fmt.Sprintf(aVerb, "resume", "s"))
			b.is("select s.since_at >= s.last_at from pawl.schedule as s", "true")
		}
	})
	t.Run("the table refuses it", func(t *testing.T) {
		t.Parallel()
		b := setup(t, put(daily))
		b.is("update pawl.schedule set last_at = next_at", "23514")
		b.is("update pawl.schedule set last_at = since_at + interval '1 second', next_at = null", "23514")
	})
}

// After an outage, the last tick is enqueued, or all in order up to the newest thousand.
func TestSchedule_MissedTicks(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ missed, every, behind, want, first string }{
		{"last", "3600000", "210 minutes", "ticked 1 true 3", "30"},
		{"all", "3600000", "210 minutes", "ticked 4 true none", "210"},
		{"all", "60000", "1505 minutes", "ticked 1000 true 506", "999"},
		{"last", "60000", "365 days", "ticked 1 true 525600", "0"},
	} {
		t.Run(c.missed+" "+c.behind, func(t *testing.T) {
			t.Parallel()
			b := setup(t, fmt.Sprintf(`select pawl_v1.schedule_put('s', 'q', 'k', '', '{"every_ms": %s, "missed": "%s"}');
update pawl.schedule set next_at = now() - interval '%s'`, c.every, c.missed, c.behind))
			if got := b.main.Do(tickS); !strings.HasPrefix(got, c.want) {
				t.Errorf("got %s, want %s", got, c.want)
			}
			b.is("select round(extract(epoch from now() - min((j.headers ->> 'pawl-tick')::timestamptz)) / 60)::bigint from pawl.job as j", c.first)
			b.is("select count(*) from (select (j.headers ->> 'pawl-tick')::timestamptz - lag((j.headers ->> 'pawl-tick')::timestamptz) over (order by j.id) as step from pawl.job as j) as s where s.step <> interval '"+c.every+" milliseconds'", "0")
			b.is(tickS[:strings.Index(tickS, ", t.enqueued")]+" from pawl_v1.schedule_tick('s', (select s.fence from pawl.schedule as s)) as t", "not_due")
		})
	}
}

// The ticks that a keeper computes from a cron expression are checked for errors that would double
// or lose a tick.
func TestSchedule_CronTicksAreChecked(t *testing.T) {
	t.Parallel()
	b := setup(t, "")
	b.is(cronly, "created true")
	b.is(fmt.Sprintf(cronTik, "'{}'", "'2030-01-01 01:00Z'"), "ticked 0")
	b.is(nextIs, "2030-01-01 01:00")
	b.do(isDue)
	for _, bad := range [][2]string{
		{"null", "null"},                  // no ticks
		{"'{}'", "'2026-01-01 01:00Z'"},   // the due tick is missing
		{"'{2026-01-01 00:00Z}'", "null"}, // no next tick
		// The next tick is not after.
		{"'{2026-01-01 00:00Z}'", "'2026-01-01 00:00Z'"},
		{"'{2025-12-31 23:30Z}'", "'2026-01-01 01:00Z'"},                   // before the due tick
		{"'{2026-01-01 01:00Z,2026-01-01 00:00Z}'", "'2026-01-01 02:00Z'"}, // out of order
		{"'{2026-01-01 00:00Z,2026-01-01 00:00Z}'", "'2026-01-01 02:00Z'"}, // twice
		{"'{2026-01-01 00:00Z,null}'", "'2026-01-01 02:00Z'"},
		{"'{2126-01-01 00:00Z}'", "'2126-01-02 00:00Z'"}, // in the future
		{"array(select '2026-01-01 00:00Z'::timestamptz + n * interval '1 second' from generate_series(0, 1000) as n)", "'2026-02-01 00:00Z'"},
	} {
		b.is(fmt.Sprintf(cronTik, bad[0], bad[1]), "P4004")
	}
	b.is("select count(*) from pawl.job", "0")
	b.is(nextIs, "2026-01-01 00:00")
	b.is(fmt.Sprintf(cronTik, "'{2026-01-01 00:00Z,2026-01-01 01:00Z}'", "'2026-01-01 02:00Z'"), "ticked 2")
	b.is(ticks, "2026-01-01T00:00:00.000000Z, 2026-01-01T01:00:00.000000Z")
	b.is("select s.next_at = s.since_at + interval '1 hour', s.last_at = s.since_at from pawl.schedule as s", "true true")
	b.do("delete from pawl.schedule")
	b.is(hourly, "created")
	b.do(isDue)
	// The keeper must not compute the ticks of an interval.
	b.is(fmt.Sprintf(cronTik, "'{2026-01-01 00:00Z}'", "'2026-01-01 01:00Z'"), "P4004")
}

// A tick that is repeated, for example after the schedule's row was restored from a copy, is a
// duplicate by its key.
func TestSchedule_TheKeyIsTheSecondGuard(t *testing.T) {
	t.Parallel()
	b := setup(t, cronly+";"+isDue)
	b.is(fmt.Sprintf(cronTik, "'{2026-01-01 00:00Z}'", "'2026-01-01 01:00Z'"), "ticked 1")
	b.do(isDue + ", last_at = null, payload = 'another payload'")
	b.is(fmt.Sprintf(cronTik, "'{2026-01-01 00:00Z}'", "'2026-01-01 01:00Z'"), "ticked 0")
	b.is("select count(*) from pawl.job", "1")
}

// While a schedule is paused, nothing is enqueued, also not by a keeper that read it before. After
// a resume it continues with the next tick. Exactly the changes are audited.
func TestSchedule_Operators(t *testing.T) {
	t.Parallel()
	b := setup(t, hourly+";"+isDue)
	fence := b.main.Do("select s.fence from pawl.schedule as s")
	b.is(fmt.Sprintf(aVerb, "pause", "s"), "paused {}")
	b.is(fmt.Sprintf(aVerb, "pause", "s"), "unchanged {}")
	b.is("select t.outcome from pawl_v1.schedule_tick('s', "+fence+") as t", "superseded")
	b.is("select t.outcome from pawl_v1.schedule_tick('s', (select s.fence from pawl.schedule as s)) as t", "superseded")
	b.is(hourly, "unchanged") // a deploy does not resume it
	b.is("select s.paused from pawl.schedule as s", "true")
	b.is("select r.outcome, r.detail ->> 'job' from pawl_v1.schedule_run_now('s', 'ann', 'why') as r", "enqueued 1")
	b.is("select r.outcome, r.detail ->> 'job' from pawl_v1.schedule_run_now('s', 'ann', 'why') as r", "enqueued 2")
	b.is("select r.outcome, r.detail ? 'next_at' from pawl_v1.schedule_resume('s', 'ann', 'why') as r", "resumed true")
	b.is(fmt.Sprintf(aVerb, "resume", "s"), "unchanged {}")
	b.is(gridOf, "1") // ticks during the pause are dropped, and the grid is kept
	b.is("select count(*) from pawl.job", "2")
	b.is(fmt.Sprintf(aVerb, "delete", "s"), "deleted {}")
	for _, verb := range []string{"pause", "resume", "run_now", "delete"} {
		b.is(fmt.Sprintf(aVerb, verb, "s"), "absent {}")
		b.is(fmt.Sprintf("select pawl_v1.schedule_%s('s', 'ann', '')", verb), "P4004")
	}
	b.is("select a.verb, a.actor, a.reason, a.before ->> 'payload_octets', a.before ->> 'paused', a.after ->> 'paused' from pawl.audit as a where a.target = 'schedule s' order by a.id",
		"schedule_pause ann why 7 false true, schedule_run_now ann why 7 true true, schedule_run_now ann why 7 true true, "+
			"schedule_resume ann why 7 true false, schedule_delete ann why 7 false <nil>")
	b.is("select count(*) from pawl.audit where before ? 'payload'", "0")
}

// After a resume, a keeper computes the next tick of a cron expression.
func TestSchedule_ResumedCronIsComputedAgain(t *testing.T) {
	t.Parallel()
	b := setup(t, cronly+";"+isDue)
	b.do(fmt.Sprintf(aVerb, "pause", "s"))
	b.is(fmt.Sprintf(aVerb, "resume", "s"), "resumed {}")
	b.is("select s.next_at is null, s.since_at > now() - interval '1 minute' from pawl.schedule as s", "true true")
}

func TestSchedule_BadArguments(t *testing.T) {
	t.Parallel()
	b := setup(t, "")
	put := func(name, options string) string {
		return fmt.Sprintf("select pawl_v1.schedule_put('%s', 'q', 'k', '', '%s')", name, options)
	}
	every := `{"every_ms": 1000, `
	for statement, code := range map[string]string{
		put("", `{"every_ms": 1000}`):                       "P4000",
		put(strings.Repeat("s", 201), `{"every_ms": 1000}`): "P4000",
		put("s", `{}`): "P4004",
		put("s", `{"every_ms": 1000, "cron": "* * * * *"}`):                        "P4004",
		put("s", `{"every_ms": 99}`):                                               "P4004",
		put("s", `{"every_ms": 31536000001}`):                                      "P4004",
		put("s", every+`"time_zone": "UTC"}`):                                      "P4004",
		put("s", every+`"missed": "none"}`):                                        "P4004",
		put("s", every+`"priority": 5}`):                                           "P4004",
		put("s", every+`"max_attempts": 0}`):                                       "P4004",
		put("s", every+`"headers": []}`):                                           "P4004",
		put("s", every+`"lane_policy": "drop"}`):                                   "P4004",
		put("s", every+`"lane": ""}`):                                              "P4000",
		put("s", every+`"key": "k"}`):                                              "P4004",
		put("s", every+`"first_at": "soon"}`):                                      "22007",
		put("s", `{"cron": ""}`):                                                   "P4000",
		put("s", `[]`):                                                             "P4004",
		"select pawl_v1.schedule_put('s', '', 'k', '', '{\"every_ms\": 1000}')":    "P4000",
		"select pawl_v1.schedule_put('s', 'q', 'k', null, '{\"every_ms\": 1000}')": "P4004",
	} {
		b.is(statement, code)
	}
	b.is("select count(*) from pawl.schedule", "0")
	b.is(put(strings.Repeat("s", 200), every+`"first_at": "2026-01-01", "lane": null, "headers": null}`)+" is not null", "true")
	// Its key fits the bound.
	b.is("select t.outcome from pawl.schedule as s, pawl_v1.schedule_tick(s.name, s.fence) as t", "ticked")
}
