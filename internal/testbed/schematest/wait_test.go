package schematest_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/pawltest"
)

// unbounded are the public functions without their own lock_timeout, with the reason.
var unbounded = map[string]string{
	"inbox_store":        callers,
	"inbox_settle":       callers,
	"job_enqueue":        callers,
	"job_enqueue_many":   callers,
	"outbox_append":      callers,
	"outbox_append_many": callers,
	"delivery_keep":      callers,

	"command_open":  "it tries the lock, waits for it in _command_wait, and passes by a row that is locked",
	"command_close": "its key is locked since command_open; the row that it ends, too",
	"worker_attend": "it waits for its own worker's claim or heartbeat, and for a sweep",
	"worker_leave":  "it waits for its own worker's claim, which must not be overlooked",

	"job_hold":        helper,
	"job_hold_many":   helper,
	"job_finish":      helper,
	"job_finish_many": helper,
	"lane_finish":     helper,
	"job_open":        helper,
	"job_close":       helper,

	"job_exchange":    "it waits as job_finish_many does, and passes by what is locked as job_claim does",
	"job_claim":       skips,
	"job_claim_id":    skips,
	"job_sweep":       skips,
	"job_key_purge":   skips,
	"delivery_purge":  skips,
	"command_purge":   skips,
	"step_purge":      skips,
	"replay_purge":    skips,
	"fence_purge":     skips,
	"lane_batch":      skips,
	"lane_purge":      skips,
	"lane_sweep":      skips,
	"try_lock":        "it tries, and says busy",
	"job_kick":        tries,
	"worker_asleep":   tries,
	"worker_awake":    tries,
	"worker_register": "it inserts a row under a number of its own",
	"purge_count":     reads,
	"explain":         reads,
	"stale_classify":  reads,
	"queue_death":     reads,
}

const (
	callers = "it is part of the caller's transaction, whose lock_timeout decides"
	helper  = "it locks with skip locked, then waits in _job_wait or _jobs_wait, which bound it"
	skips   = "it passes by what is locked"
	tries   = "it tries its locks; a NOTIFY waits at COMMIT, which is the caller's"
	reads   = "it only reads"
)

// Each public function sets its own lock_timeout, waits in a helper that does, or never waits.
// Otherwise it is listed with the reason why its caller sets the bound.
func TestFunctions_BoundTheirWaits(t *testing.T) {
	t.Parallel()
	pool := pawltest.DB(t)
	rows, _ := pool.Query(t.Context(), `select distinct p.proname::text
  from pg_proc as p
 where p.pronamespace = 'pawl_v1'::regnamespace
   and p.proname not like '\_%'
   and not coalesce(p.proconfig::text like '%lock_timeout=%', false)`)
	found, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, name := range found {
		seen[name] = true
		if unbounded[name] == "" {
			t.Errorf("%s sets no lock_timeout, and no reason is given here", name)
		}
	}
	for name := range unbounded {
		if !seen[name] {
			t.Errorf("%s sets a lock_timeout, or does not exist: take it out of the list", name)
		}
	}
	var loose []string
	err = pool.QueryRow(t.Context(), `select coalesce(array_agg(p.proname::text), '{}')
  from pg_proc as p
 where p.pronamespace = 'pawl_v1'::regnamespace
   and p.proname in ('_job_wait', '_jobs_wait', '_command_wait')
   and not coalesce(p.proconfig::text like '%lock_timeout=%', false)`).Scan(&loose)
	if err != nil || len(loose) > 0 {
		t.Errorf("helpers that wait without a bound: %v, %v", loose, err)
	}
}

// Functions that are called in the caller's transaction wait as long as the caller's lock_timeout
// allows.
func TestFunctions_OfTheCallersTransactionWaitAsItSays(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ given, first, second string }{
		"job_enqueue": {"", `select pawl_v1.job_enqueue('q', 'k', '', '{"key": "a"}')`, `select pawl_v1.job_enqueue('q', 'k', '', '{"key": "a"}')`},
		"job_enqueue_many": {"", `select pawl_v1.job_enqueue('q', 'k', '', '{"key": "a"}')`,
			`select pawl_v1.job_enqueue_many('{q}', '{k}', array[''::bytea], '{a}')`},
		"outbox_append": {"", `select pawl_v1.outbox_append('s', 'T', 'order', '1', 'x', '{"scope": "s", "key": "k"}')`,
			`select pawl_v1.outbox_append('s', 'T', 'order', '1', 'x', '{"scope": "s", "key": "k"}')`},
		"outbox_append_many": {"", `select pawl_v1.outbox_append('s', 'T', 'order', '1', 'x', '{"scope": "s", "key": "k"}')`,
			`select pawl_v1.outbox_append_many('{s}', '{T}', '{order}', '{1}', array['x'::bytea], '{s}', '{k}')`},
		"inbox_store": {"", `select pawl_v1.job_enqueue('q', 'k', '', '{"lane": "l"}')`,
			`begin; select pawl_v1.inbox_claim('c', 'm', sha256('')); select pawl_v1.inbox_store('c', 'm', 'q', 'k', '', '{"lane": "l"}')`},
		"inbox_settle": {"begin; select pawl_v1.inbox_claim('c', 'm', sha256('')); select pawl_v1.inbox_store('c', 'm', 'q', 'k', ''); commit",
			"select from pawl.inbox for update", "select pawl_v1.inbox_settle('c', 'm', 1)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, c.given)
			b.do("begin")
			b.do(c.first)
			other := b.open("other")
			other.Do("set lock_timeout = '100ms'")
			got := other.Do(c.second)
			if got == "blocked" {
				got = other.Wait()
			}
			if got != "55P03" {
				t.Errorf("%s: %q, want 55P03", c.second, got)
			}
			b.do("rollback")
		})
	}
}
