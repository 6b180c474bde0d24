package schematest_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pawl-go/pawl/internal/testbed/patience"
	"github.com/pawl-go/pawl/internal/testbed/postgres"
	"github.com/pawl-go/pawl/migrate"
	"github.com/pawl-go/pawl/schema"
)

// A sleeper is the presence connection of a sleeping worker.
type sleeper struct {
	*testing.T
	conn    *pgx.Conn
	signals map[string]string // payload to queue
}

func newSleeper(t *testing.T, url string, queues ...string) *sleeper {
	t.Helper()
	s := &sleeper{T: t, conn: connect(t, url), signals: map[string]string{}}
	if _, err := s.conn.Exec(t.Context(), "listen pawl_jobs"); err != nil {
		t.Fatal(err)
	}
	s.sleep(queues...)
	return s
}

func (s *sleeper) sleep(queues ...string) (outcomes []string) {
	s.Helper()
	rows, _ := s.conn.Query(s.Context(), "select a.outcome, a.queue, a.signal from pawl_v1.worker_asleep($1) as a", queues)
	var outcome, queue, signal string
	if _, err := pgx.ForEachRow(rows, []any{&outcome, &queue, &signal}, func() error {
		outcomes, s.signals[signal] = append(outcomes, outcome), queue
		return nil
	}); err != nil {
		s.Fatal(err)
	}
	return outcomes
}

// heard returns the sorted queues that committed transactions have notified. Our own notification
// follows all of theirs.
func (s *sleeper) heard() string {
	s.Helper()
	if _, err := s.conn.Exec(s.Context(), "notify pawl_jobs, 'mark'"); err != nil {
		s.Fatal(err)
	}
	var queues []string
	for {
		n, err := s.conn.WaitForNotification(s.Context())
		if err != nil {
			s.Fatal(err)
		}
		if n.Payload == "mark" {
			slices.Sort(queues)
			return strings.Join(queues, " ")
		}
		if n.Payload == "schedules" {
			queues = append(queues, n.Payload)
			continue
		}
		queues = append(queues, s.signals[n.Payload])
	}
}

// A waking is a statement that may make jobs due, and the queues that it must wake.
type waking struct{ name, given, statement, want string }

const heldDelivery = `begin; select pawl_v1.inbox_claim('c', 'm', sha256('')); select pawl_v1.sequence_gate_pass('c', 'r', 2, '{"mode": "strict", "first": 1}');
select pawl_v1.inbox_store('c', 'm', 'inbox/c', 'k', '', '{"retry_in_ms": 60000}');
select pawl_v1.sequence_gate_hold('c', 'r', 2, (select max(j.id) from pawl.job as j)); commit;`

// kept stores a delivery, and handForgotten also has an operator forget it.
const (
	kept          = `select pawl_v1.delivery_keep('c', 'm', '', jsonb_build_object('hash', encode(sha256('one'), 'hex'), 'stored_as', '{"queue": "q", "kind": "stored"}'::jsonb));`
	handForgotten = "select pawl_v1.inbox_claim('c', 'm', sha256('one'));" + kept + "select pawl_v1.inbox_forget('c', 'm', 'ann', 'a reason');"
)

// lanePair is the head of a lane and a job behind it. In deadPair the head is a dead letter that
// blocks the other.
const (
	lanePair = `select pawl_v1.job_enqueue('q', 'k', '', '{"lane": "l"}'), pawl_v1.job_enqueue('q', 'k', '', '{"lane": "l"}');`
	deadPair = lanePair + `select pawl_v1.job_claim('q', null); select pawl_v1.job_fail(1, 1, '{"error": "no"}', '{"final": true}')`
)

var wakings = []waking{
	{"enqueue", "", "select pawl_v1.job_enqueue('q', 'k', '')", "q"},
	{"enqueue, a key", "", `select pawl_v1.job_enqueue('q', 'k', '', '{"key": "a"}')`, "q"},
	{"enqueue, urgent", "", `select pawl_v1.job_enqueue('q', 'k', '', '{"priority": 1}')`, "q"},
	{"enqueue, first of its lane", "", `select pawl_v1.job_enqueue('q', 'k', '', '{"lane": "l"}')`, "q"},
	{"enqueue, three in a transaction", "", `begin; select pawl_v1.job_enqueue('q', 'k', ''), pawl_v1.job_enqueue('q', 'k', ''), pawl_v1.job_enqueue('r', 'k', ''); commit`, "q r"},
	{"enqueue, again after a savepoint", "", `begin; savepoint s; select pawl_v1.job_enqueue('q', 'k', ''); rollback to s; select pawl_v1.job_enqueue('q', 'k', ''); commit`, "q"},
	{"enqueue, serializable", "", `begin isolation level serializable; select pawl_v1.job_enqueue('q', 'k', ''); commit`, "q"},
	// The commit of a notification waits for those of other sessions, also of other tests.
	{"enqueue, with a limit for locks", "", `begin; set local lock_timeout = '20s'; set local statement_timeout = '60s'; select pawl_v1.job_enqueue('q', 'k', ''); commit`, "q"},
	{"enqueue many", "", `select pawl_v1.job_enqueue_many('{q,q,q}', '{k,k,k}', array['','','']::bytea[])`, "q"},
	{"enqueue many, two queues", "", `select pawl_v1.job_enqueue_many('{q,q,r}', '{k,k,k}', array['','','']::bytea[])`, "q r"},
	{"enqueue many, one not later", "", `select pawl_v1.job_enqueue_many('{q,q}', '{k,k}', array['','']::bytea[], p_retry_in_ms => '{null,5000}')`, "q"},
	{"enqueue many, lanes", "", `select pawl_v1.job_enqueue_many('{q,q}', '{k,k}', array['','']::bytea[], p_options => '{"lanes": ["l", "l"]}')`, "q"},
	{"append", "", `select pawl_v1.outbox_append('s', 'T', null, null, 'x')`, "outbox/s"},
	{"append, an aggregate", "", `select pawl_v1.outbox_append('s', 'T', 'order', '1', 'x')`, "outbox/s"},
	{"append many", "", `select pawl_v1.outbox_append_many('{s,s}', '{T,T}', '{order,order}', '{1,2}', array['x','y']::bytea[])`, "outbox/s"},
	{"store", "", `begin; select pawl_v1.inbox_claim('c', 'm', sha256('')); select pawl_v1.inbox_store('c', 'm', 'inbox/c', 'k', ''); commit`, "inbox/c"},
	{"tick", `select pawl_v1.schedule_put('s', 'q', 'k', 'a', '{"every_ms": 1000, "first_at": "2026-01-01"}')`,
		"select pawl_v1.schedule_tick('s', (select s.fence from pawl_v1.schedules as s))", "q"},
	{"run now", `select pawl_v1.schedule_put('s', 'q', 'k', 'a', '{"every_ms": 3600000}')`, "select pawl_v1.schedule_run_now('s', 'ann', 'why')", "q"},
	{"retry", `select pawl_v1.job_enqueue('q', 'k', ''); select pawl_v1.job_claim('q', null); select pawl_v1.job_fail(1, 1, '{"error": "no"}', '{"final": true}')`,
		"select pawl_v1.job_retry(1, 'ann', 'why')", "q"},
	{"reschedule to now", `select pawl_v1.job_enqueue('q', 'k', '', '{"retry_in_ms": 60000}')`, "select pawl_v1.job_reschedule(1, 0)", "q"},
	{"replay", handForgotten, "select pawl_v1.inbox_replay('c', 'm', 'ann', 'why')", "q"},
	{"resume", `select pawl_v1.queue_set('q', '{"mode": "paused"}', 'ann', 'why')`, `select pawl_v1.queue_set('q', '{"mode": "running"}', 'ann', 'why')`, "q"},
	{"unblock", deadPair, "select pawl_v1.lane_unblock('q', 'l', 'ann', 'why')", "q"},
	{"discard what blocks a lane", deadPair, "select pawl_v1.job_discard(1, 'ann', 'why')", "q"},
	{"cancel the first of a lane", lanePair, "select pawl_v1.job_cancel(1, 'ann', 'why')", "q"},
	{"cancel one's own, the first of a lane", lanePair, "select pawl_v1.job_cancel_own(1)", "q"},
	{"retry a cancelled job of a lane", `select pawl_v1.job_enqueue('q', 'k', '', '{"lane": "l"}'); select pawl_v1.job_cancel(1, 'ann', 'why')`, "select pawl_v1.job_retry(1, 'ann', 'why')", "q"},
	{"leave", `select pawl_v1.worker_register('w'), pawl_v1.job_enqueue('q', 'k', ''), pawl_v1.job_enqueue('r', 'k', '');
select pawl_v1.job_claim('q', 1), pawl_v1.job_claim('r', 1)`, "select pawl_v1.worker_leave(1)", "q r"},
	{"drain, no longer paused", `select pawl_v1.queue_set('q', '{"mode": "paused"}', 'ann', 'why')`, `select pawl_v1.queue_set('q', '{"mode": "draining"}', 'ann', 'why')`, "q"},
	{"reset a gate", heldDelivery, "select pawl_v1.sequence_gate_reset('c', 'r', 1, 'ann', 'why')", "inbox/c"},
	{"release a gate", heldDelivery, "select pawl_v1.sequence_gate_release('c', 'r', 'ann', 'why')", "inbox/c"},
	{"settle a step", `select pawl_v1.job_enqueue('q', 'k', ''); select pawl_v1.job_claim('q', null);
select pawl_v1.step_begin('s', 'k', 'e', sha256(''), '{"recovery": "at_most_once", "provider_key": "p", "job_id": 1}');
update pawl.step set status = 'unknown'; select pawl_v1.job_fail(1, 1, '{"error": "no"}', '{"unknown": true}')`,
		"select pawl_v1.step_settle('s', 'k', 'e', s.fence, 'executed', 'ann', 'why') from pawl.step as s", "q"},
	{"pass a gate", heldDelivery, `begin; select pawl_v1.inbox_claim('c', 'm1', sha256('')); select pawl_v1.sequence_gate_pass('c', 'r', 1, '{"mode": "strict", "first": 1}'); commit`, "inbox/c"},
	{"kick", "", "select pawl_v1.job_kick('{q,r}')", "q r"},

	{"nothing", "", "select 1", ""},
	{"enqueue, duplicate", `select pawl_v1.job_enqueue('q', 'k', '', '{"key": "a"}')`, `select pawl_v1.job_enqueue('q', 'k', '', '{"key": "a"}')`, ""},
	{"enqueue, later", "", `select pawl_v1.job_enqueue('q', 'k', '', '{"retry_in_ms": 60000}')`, ""},
	{"enqueue, behind in its lane", `select pawl_v1.job_enqueue('q', 'k', '', '{"lane": "l"}')`, `select pawl_v1.job_enqueue('q', 'k', '', '{"lane": "l"}')`, ""},
	{"enqueue, rolled back", "", `begin; select pawl_v1.job_enqueue('q', 'k', ''); rollback`, ""},
	{"enqueue, to a savepoint rolled back", "", `begin; savepoint s; select pawl_v1.job_enqueue('q', 'k', ''); rollback to s; commit`, ""},
	{"enqueue, another queue", "", `select pawl_v1.job_enqueue('other', 'k', '')`, ""},
	{"enqueue many, later", "", `select pawl_v1.job_enqueue_many('{q,q}', '{k,k}', array['','']::bytea[], p_retry_in_ms => '{5000,5000}')`, ""},
	{"enqueue many, duplicates", `select pawl_v1.job_enqueue('q', 'k', '', '{"key": "a"}')`, `select pawl_v1.job_enqueue_many('{q}', '{k}', array['']::bytea[], '{a}')`, ""},
	{"cancel what has no lane", `select pawl_v1.job_enqueue('q', 'k', '')`, "select pawl_v1.job_cancel(1, 'ann', 'why')", ""},
	{"cancel the last of a lane", `select pawl_v1.job_enqueue('q', 'k', '', '{"lane": "l"}')`, "select pawl_v1.job_cancel(1, 'ann', 'why')", ""},
	{"leave, with nothing in hand", `select pawl_v1.worker_register('w'), pawl_v1.job_enqueue('q', 'k', '')`, "select pawl_v1.worker_leave(1)", ""},
	{"reschedule, later", `select pawl_v1.job_enqueue('q', 'k', '', '{"retry_in_ms": 60000}')`, "select pawl_v1.job_reschedule(1, 1000)", ""},
	{"pause", "", `select pawl_v1.queue_set('q', '{"mode": "paused"}', 'ann', 'why')`, ""},
	{"kick, another queue", "", "select pawl_v1.job_kick('{other}')", ""},
}

// If a worker of the queue sleeps, a function that makes a job due notifies once per queue and
// transaction. Otherwise it never notifies. In both cases the caller's session keeps no lock.
func TestWake_OnlySleepers(t *testing.T) {
	t.Parallel()
	for _, w := range wakings {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			for _, asleep := range []bool{true, false} {
				for _, fault := range w.judge(t, asleep) {
					t.Error(fault)
				}
			}
		})
	}
}

// judge plays a waking with the given changes of functions, and returns the faults.
func (w waking) judge(t *testing.T, asleep bool, mutate ...string) (faults []string) {
	t.Helper()
	b := setup(t, strings.Join(mutate, ";")+";"+w.given)
	s := newSleeper(t, b.url, "q", "r", "outbox/s", "inbox/c")
	want := w.want
	if !asleep {
		want = ""
		if _, err := s.conn.Exec(t.Context(), "select pawl_v1.worker_awake('{q,r,outbox/s,inbox/c}')"); err != nil {
			t.Fatal(err)
		}
	}
	b.do(w.statement)
	if got := s.heard(); got != want {
		faults = append(faults, fmt.Sprintf("asleep %v: it notified %q, want %q", asleep, got, want))
	}
	if got := b.main.Do("select count(*) from pg_locks as l where l.pid = pg_backend_pid() and l.locktype = 'advisory'"); got != "0" {
		faults = append(faults, "the session keeps "+got+" locks")
	}
	return faults
}

// A schedule that is due, or whose next tick a keeper must compute, wakes the keepers, whether a
// worker sleeps or not. One that is paused, unchanged or due later does not.
func TestWake_Keepers(t *testing.T) {
	t.Parallel()
	const (
		hourly = `select pawl_v1.schedule_put('s', 'q', 'k', '', '{"every_ms": 3600000}')`
		past   = `select pawl_v1.schedule_put('s', 'q', 'k', '', '{"every_ms": 3600000, "first_at": "2026-01-01"}')`
		cron   = `select pawl_v1.schedule_put('s', 'q', 'k', '', '{"cron": "0 * * * *"}')`
		quick  = `select pawl_v1.schedule_put('s', 'q', 'k', '', '{"every_ms": 500}')`
		pause  = `select pawl_v1.schedule_pause('s', 'ann', 'why')`
		resume = `select pawl_v1.schedule_resume('s', 'ann', 'why')`
	)
	for name, w := range map[string]waking{
		"put, due":              {"", "", past, "schedules"},
		"put, a cron":           {"", "", cron, "schedules"},
		"put, soon":             {"", "", quick, "schedules"},
		"put, later":            {"", "", hourly, ""},
		"put, rolled back":      {"", "", "begin;" + past + "; rollback", ""},
		"put, unchanged":        {"", cron, cron, ""},
		"put, changed to soon":  {"", hourly, quick, "schedules"},
		"put, changed to later": {"", quick + "; update pawl.schedule set next_at = now() + interval '1 hour'", hourly, ""},
		"put, paused":           {"", hourly + ";" + pause, cron, ""},
		"resume, soon":          {"", quick + ";" + pause, resume, "schedules"},
		"resume, a cron":        {"", cron + ";" + pause, resume, "schedules"},
		"resume, later":         {"", hourly + ";" + pause, resume, ""},
		"resume, unchanged":     {"", cron, resume, ""},
		"pause":                 {"", past, pause, ""},
		"delete":                {"", past, `select pawl_v1.schedule_delete('s', 'ann', 'why')`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, fault := range w.judge(t, true) {
				t.Error(fault)
			}
		})
	}
	for name, m := range map[string]struct {
		mutation string
		w        waking
	}{
		"mutant: a put tells no keeper":             {edited("_wake_keepers", "perform pg_notify('pawl_jobs', 'schedules')", "null"), waking{"", "", past, "schedules"}},
		"mutant: a resume tells no keeper":          {edited("schedule_resume", "  perform pawl_v1._wake_keepers(v_after.next_at);\n", ""), waking{"", cron + ";" + pause, resume, "schedules"}},
		"mutant: what is due later tells them":      {edited("_wake_keepers", "p_next_at < clock_timestamp() + interval '1 second'", "true"), waking{"", "", hourly, ""}},
		"mutant: what is paused tells them":         {edited("schedule_put", "if not v_before.paused then", "if true then"), waking{"", hourly + ";" + pause, cron, ""}},
		"mutant: a tick that is not known does not": {edited("_wake_keepers", "interval '1 second', true)", "interval '1 second', false)"), waking{"", "", cron, "schedules"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if len(m.w.judge(t, true, m.mutation)) == 0 {
				t.Error("it survives")
			}
		})
	}
}

// edited returns a script that replaces a part of a function's source, which must occur once.
func edited(function, old, new string) string {
	return fmt.Sprintf(`do $do$
declare v_source text := pg_get_functiondef('pawl_v1.%s'::regproc);
begin
  if (length(v_source) - length(replace(v_source, $old$%s$old$, ''))) <> length($old$%[2]s$old$) then raise 'not there once'; end if;
  execute replace(v_source, $old$%[2]s$old$, $new$%[3]s$new$);
end $do$`, function, old, new)
}

// One worker of a queue is announced at a time. The announcement ends with its session, for any
// cause.
func TestWorkerAsleep_OneAtATime(t *testing.T) {
	t.Parallel()
	b := setup(t, "")
	first := newSleeper(t, b.url, "q")
	second := newSleeper(t, b.url)
	if got := fmt.Sprint(second.sleep("q", "r")); got != "[taken asleep]" {
		t.Errorf("got %s", got)
	}
	b.do("select pawl_v1.job_enqueue('q', 'k', '')")
	if one, two := first.heard(), second.heard(); one != "q" || two != "q" {
		t.Errorf("heard %q and %q: both listen", one, two)
	}
	b.is("select pg_terminate_backend(l.pid, 10000) from pg_locks as l where l.classid = 1885435767 and l.granted and l.database = (select d.oid from pg_database as d where d.datname = current_database()) and l.objid::bigint = pawl_v1._wake_key('q')::bigint & 4294967295", "true")
	if got := fmt.Sprint(second.sleep("q")); got != "[asleep]" {
		t.Errorf("after the first died: %s", got)
	}
	rows, _ := second.conn.Query(t.Context(), "select a.outcome || ' ' || a.queue from pawl_v1.worker_awake('{q,other,r}') as a")
	got, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || fmt.Sprint(got) != "[awake q was_awake other awake r]" {
		t.Errorf("got %v, %v", got, err)
	}
	for _, call := range []string{"worker_asleep(array[''])", "worker_awake(array[''])", "job_kick(array[''])"} {
		b.same(b.refusal("select pawl_v1."+call).Code, "P4000")
	}
	for _, call := range []string{"worker_asleep", "worker_awake", "job_kick"} {
		b.same(b.refusal("select pawl_v1."+call+"(array_fill('q'::text, '{1001}'))").Code, "P4004")
	}
}

// A frozen worker stays announced at most until its lease ends. Then the sweep ends its presence
// session if the sweep's role may do so.
//
// The sweep ends only a session that provably is one. It spares a late worker within its lease, a
// session in a transaction or without an announcement, and one of another worker or database.
func TestSweep_EndsTheSessionsOfExpiredWorkers(t *testing.T) {
	t.Parallel()
	const noTransaction = "\n          and a.state in ('idle', 'disabled')"
	for name, c := range map[string]struct {
		role, lease, also, mutation string
		number                      int // of the presence lock
		ended                       bool
	}{
		"expired":                       {number: 1, ended: true},
		"late":                          {lease: "1 hour", number: 1},
		"of another role":               {role: "pawl_app", number: 1},
		"in a transaction":              {also: "begin", number: 1},
		"in a transaction that failed":  {also: "begin; select 1/0", number: 1},
		"not announced":                 {also: "select pawl_v1.worker_awake('{q}')", number: 1},
		"of another worker":             {number: 2},
		"mutant: no end of theirs":      {number: 1, mutation: edited("job_sweep", "perform pawl_v1._presence_end(v_expired);", "")},
		"mutant: also in a transaction": {also: "begin", number: 1, mutation: edited("_presence_end", noTransaction, ""), ended: true},
		"mutant: any worker's":          {number: 2, mutation: edited("_presence_end", "\n          and l.objid = pawl_v1._presence(v_worker)::oid", ""), ended: true},
		"mutant: announced as whatever": {also: "select pawl_v1.worker_awake('{q}'), pg_advisory_lock(1, 1)", number: 1, mutation: edited("_presence_end", "\n                   and s.classid = 1885435767", ""), ended: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, schema.Roles()+";"+c.mutation)
			s := newSleeper(t, b.url, "q")
			pid := s.conn.PgConn().PID()
			if _, err := s.conn.Exec(t.Context(), "select pawl_v1.worker_register('w', $1::text::interval)", cmp.Or(c.lease, "1 second")); err != nil {
				t.Fatal(err)
			}
			_, _ = s.conn.Exec(t.Context(), "select pawl_v1.worker_register('another', '1 hour'), pg_advisory_lock(1885435757, "+fmt.Sprint(c.number)+")")
			_, _ = s.conn.Exec(t.Context(), c.also)
			b.do("update pawl.worker set seen_at = clock_timestamp() - interval '10 seconds'")
			b.do("set role " + cmp.Or(c.role, "postgres"))
			b.is("select s.outcome from pawl_v1.job_sweep('{k}') as s", "swept")
			alive := fmt.Sprintf("select count(*) from pg_stat_activity as a where a.pid = %d", pid)
			if c.ended {
				b.until(b.main, alive, "0")
				return
			}
			patience.Watch(300*time.Millisecond, func() { b.is(alive, "1") })
		})
	}
}

// If two queues have the same number, each wakes the other's worker, and both are announced.
func TestWorkerAsleep_QueuesOfOneNumber(t *testing.T) {
	t.Parallel()
	b := setup(t, "")
	b.is("select pawl_v1._wake_key('"+collidingA+"') = pawl_v1._wake_key('"+collidingB+"')", "true")
	s := newSleeper(t, b.url, collidingA)
	if got := fmt.Sprint(s.sleep(collidingB)); got != "[asleep]" {
		t.Errorf("a worker of both: %s", got)
	}
	b.do("select pawl_v1.job_enqueue('" + collidingA + "', 'k', '')")
	if got := s.heard(); got == "" {
		t.Error("heard nothing")
	}
	if got := fmt.Sprint(newSleeper(t, b.url).sleep(collidingB)); got != "[taken]" {
		t.Errorf("another worker: %s", got)
	}
}

// collidingA and collidingB have the same number on every server with the usual byte order.
const collidingA, collidingB = "q7169", "q122757"

// The application's role may wake and sleep.
func TestWake_AsTheApplication(t *testing.T) {
	t.Parallel()
	b := setup(t, schema.Roles())
	s := newSleeper(t, b.url)
	if _, err := s.conn.Exec(t.Context(), "set role pawl_app"); err != nil {
		t.Fatal(err)
	}
	s.sleep("q", "outbox/s")
	b.do("set role pawl_app")
	b.do("select pawl_v1.job_enqueue('q', 'k', '')")
	b.do("select pawl_v1.outbox_append('s', 'T', null, null, 'x')")
	b.do("select pawl_v1.job_kick('{q}')")
	if got := s.heard(); got != "outbox/s q q" && got != "outbox/s q" {
		t.Errorf("heard %q", got)
	}
}

// An enqueue never waits for a worker that falls asleep, and the worker does not wait for an open
// transaction that has enqueued.
func TestWake_NeverWaits(t *testing.T) {
	t.Parallel()
	b := setup(t, "")
	b.do("begin")
	b.do("select pawl_v1.job_enqueue('q', 'k', '')")
	s := newSleeper(t, b.url) // a transaction that has enqueued is open
	if got := fmt.Sprint(s.sleep("q")); got != "[asleep]" {
		t.Errorf("beside an open transaction: %s", got)
	}
	b.do("commit")
	if got := s.heard(); got != "" {
		t.Errorf("it asked before the worker slept, and notified %q", got)
	}
	b.do("select pawl_v1.job_kick('{q}')")
	if got := s.heard(); got != "q" {
		t.Errorf("a kick after the commit: %q", got)
	}
}

// If many transactions enqueue concurrently while a worker sleeps, one to eight of them notify.
// Notifying transactions commit one at a time.
func TestWake_FewNotifyAtOnce(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ mutation, want string }{
		"":                   {"", "true true"},
		"mutant: all notify": {edited("_wake", "\n        and pg_try_advisory_xact_lock(1885435768 + pg_backend_pid() % 8, pawl_v1._wake_key(q.name))", ""), "true false"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, c.mutation)
			s := newSleeper(t, b.url, "q")
			var open []*pgx.Conn
			for range 20 {
				conn := connect(t, b.url)
				if _, err := conn.Exec(t.Context(), "begin; select pawl_v1.job_enqueue('q', 'k', ''), pawl_v1.job_enqueue('q', 'k', '')"); err != nil {
					t.Fatal(err)
				}
				open = append(open, conn)
			}
			for _, conn := range open {
				if _, err := conn.Exec(t.Context(), "commit"); err != nil {
					t.Fatal(err)
				}
			}
			heard := len(strings.Fields(s.heard()))
			if got := fmt.Sprint(heard >= 1, heard <= 8); got != c.want {
				t.Errorf("%d of 20 notified", heard)
			}
		})
	}
}

// A transaction that will be prepared may enqueue while a worker sleeps. PREPARE TRANSACTION would
// fail if it had notified, so its jobs wait for a poll or a kick.
func TestWake_PreparedTransactions(t *testing.T) {
	t.Parallel()
	server, err := postgres.Start(t.Context(), postgres.Options{RAM: true, Settings: map[string]string{"max_prepared_transactions": "2"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Stop() })
	url := server.URL("postgres")
	conn := connect(t, url)
	if _, err := migrate.Up(t.Context(), conn, nil); err != nil {
		t.Fatal(err)
	}
	s := newSleeper(t, url, "q")
	for _, statement := range []string{"begin", "select pawl_v1.job_enqueue('q', 'k', '')", "prepare transaction 'one'", "commit prepared 'one'"} {
		if _, err := conn.Exec(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	if got := s.heard(); got != "" {
		t.Errorf("heard %q", got)
	}
	if _, err := conn.Exec(t.Context(), "select pawl_v1.job_kick('{q}')"); err != nil {
		t.Fatal(err)
	}
	if got := s.heard(); got != "q" {
		t.Errorf("a kick: %q", got)
	}
	if _, err := conn.Exec(t.Context(), edited("_wake", "current_setting('max_prepared_transactions') = '0'", "true")); err != nil {
		t.Fatal(err)
	}
	_, _ = conn.Exec(t.Context(), "begin; select pawl_v1.job_enqueue('q', 'k', '')")
	_, err = conn.Exec(t.Context(), "prepare transaction 'two'")
	var pg *pgconn.PgError
	if !asPgError(err, &pg) || pg.Code != "0A000" {
		t.Errorf("the mutant that notifies there: %v, want 0A000", err)
	}
}

// The probe is one inlined expression, so a cancel cannot interrupt it between lock and unlock.
// Sessions whose enqueues are cancelled repeatedly keep no lock. With two statements they would.
func TestWake_CancelledProbesKeepNoLock(t *testing.T) {
	t.Parallel()
	const inTwo = `create or replace function pawl_v1._asleep(p_queue text) returns boolean language plpgsql as $$
begin
  if pg_try_advisory_lock_shared(1885435767, pawl_v1._wake_key(p_queue)) then
    perform pg_advisory_unlock_shared(1885435767, pawl_v1._wake_key(p_queue));
    return false;
  end if;
  return true;
end $$`
	for name, c := range map[string]struct {
		mutation string
		keeps    bool
	}{"": {"", false}, "mutant: two statements": {inTwo, true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, c.mutation)
			if kept := b.keptByCancels(50); kept > 0 != c.keeps {
				t.Errorf("after 50 cancels at most the session keeps %d locks", kept)
			}
		})
	}
}

// keptByCancels cancels probes until the session keeps locks, at most this many times. It returns
// how many it keeps.
func (b *bed) keptByCancels(times int) (kept int) {
	b.Helper()
	conn := connect(b.T, b.url)
	for n := 0; n < times && kept == 0; n++ {
		ctx, cancel := context.WithTimeout(b.Context(), time.Minute)
		// One message, whose failure also resets the timeout, so that it does not affect the next
		// query.
		_, err := conn.Exec(ctx, "set statement_timeout = '20ms'; do $$ begin for n in 1..1000000 loop perform pawl_v1._asleep('q'); end loop; end $$")
		cancel()
		var pg *pgconn.PgError
		if !asPgError(err, &pg) || pg.Code != "57014" {
			b.Fatalf("got %v, want a cancel", err)
		}
		if err := conn.QueryRow(b.Context(), "select count(*) from pg_locks as l where l.pid = pg_backend_pid() and l.locktype = 'advisory'").Scan(&kept); err != nil {
			b.Fatal(err)
		}
	}
	return kept
}
