package schematest_test

import (
	"strings"
	"testing"
)

// The results are in the order of the arrays. A null means the default of job_enqueue's option.
func TestEnqueueMany_DefaultsAndOrder(t *testing.T) {
	t.Parallel()
	b := setup(t, "")
	b.is(`select e.n, e.outcome, e.job_id
  from pawl_v1.job_enqueue_many('{q,r,q}', '{k,l,m}', '{a,b,c}', '{z,null,a}', null, '{null,1,4}', '{null,null,3600000}',
         '{3,null,null}', array[null, '{"h": 1}', 'null']::jsonb[]) as e`,
		"1 enqueued 1, 2 enqueued 2, 3 enqueued 3")
	b.is(`select j.queue, j.kind, convert_from(j.payload, 'UTF8'), j.priority, j.max_attempts, j.headers ->> 'h',
       j.available_at <= clock_timestamp(), j.available_at > clock_timestamp() + interval '59 minutes', j.status, j.fence, j.attempts
  from pawl.job as j order by j.id`,
		"q k a 2 3 <nil> true false pending 0 0, r l b 1 25 1 true false pending 0 0, q m c 4 25 <nil> false true pending 0 0")
	b.is(`select count(*), bool_and(k.expires_at - k.created_at between interval '23 hours' and interval '25 hours') from pawl.job_key as k`,
		"2 true")
	b.do(`select pawl_v1.job_enqueue_many('{q}', '{k}', '{a}', '{short}', p_options => '{"retention_ms": 60000}')`)
	b.is(`select k.expires_at - k.created_at < interval '2 minutes' from pawl.job_key as k where k.key = 'short'`, "true")
}

// Without arrays of keys, no key is written and every job is new.
func TestEnqueueMany_WithoutKeys(t *testing.T) {
	t.Parallel()
	b := setup(t, "")
	b.is("select e.n, e.outcome, e.job_id from pawl_v1.job_enqueue_many('{q,q}', '{k,k}', '{a,a}') as e", "1 enqueued 1, 2 enqueued 2")
	b.is("select count(*) from pawl.job_key", "0")
	b.is("select count(*) from pawl_v1.job_enqueue_many('{}', '{}', '{}')", "0")
	b.is("select count(*) from pawl_v1.job_enqueue_many(null, null, null)", "0")
}

// One call enqueues ten thousand jobs with keys, and a second call returns as many duplicates.
func TestEnqueueMany_TenThousand(t *testing.T) {
	t.Parallel()
	b := setup(t, "")
	const all = `select e.outcome, count(*), count(distinct e.job_id), min(e.n), max(e.n), bool_and(e.job_id = e.n)
  from (select array_agg('q'::text) as q, array_agg('k'::text) as k, array_agg(convert_to(i::text, 'UTF8')) as a, array_agg(md5(i::text)) as keys
          from generate_series(1, 10000) as i) as r,
       pawl_v1.job_enqueue_many(r.q, r.k, r.a, r.keys) as e
 group by e.outcome`
	b.is(all, "enqueued 10000 10000 1 10000 true")
	b.is(all, "duplicate 10000 10000 1 10000 true")
	b.is("select count(*), count(distinct j.payload) from pawl.job as j", "10000 10000")
}

// A multi-row upsert fails if a key occurs twice (trap T16). Here the later row is a duplicate of
// the first.
func TestT16_AKeyTwiceInOneBatch(t *testing.T) {
	t.Parallel()
	b := setup(t, "")
	b.is("select e.outcome, e.job_id from pawl_v1.job_enqueue_many('{q,q,r,q}', '{k,k,k,k}', '{a,a,a,a}', '{x,x,x,y}') as e",
		"enqueued 1, duplicate 1, enqueued 3, enqueued 4")
	b.is("select j.id from pawl.job as j order by j.id", "1, 3, 4")
	b.is("select e.outcome from pawl_v1.job_enqueue_many('{q,q}', '{k,k}', '{a,b}', '{z,z}') as e", "P4002")
	b.is("select count(*) from pawl.job", "3")
}

// A key is one intent for both functions.
func TestEnqueueMany_SharesKeysWithEnqueue(t *testing.T) {
	t.Parallel()
	b := setup(t, "")
	b.is(`select e.outcome, e.job_id from pawl_v1.job_enqueue('q', 'k', 'a', '{"key": "single"}') as e`, "enqueued 1")
	b.is("select e.outcome, e.job_id from pawl_v1.job_enqueue_many('{q,q}', '{k,k}', '{a,a}', '{single,batch}') as e",
		"duplicate 1, enqueued 3")
	b.is(`select e.outcome, e.job_id from pawl_v1.job_enqueue('q', 'k', 'a', '{"key": "batch"}') as e`, "duplicate 3")
	hash := "encode(sha256('own'), 'hex')"
	b.is(`select e.outcome from pawl_v1.job_enqueue_many('{q}', '{k}', '{a}', '{own}', array[sha256('own')]) as e`, "enqueued")
	b.is(`select e.outcome from pawl_v1.job_enqueue('q', 'other kind', 'b', json_build_object('key', 'own', 'hash', `+hash+`)::jsonb) as e`, "duplicate")
}

// A key with another payload prevents the whole batch, and the error contains both hashes.
func TestEnqueueMany_KeyReused(t *testing.T) {
	t.Parallel()
	b := setup(t, `select pawl_v1.job_enqueue('q', 'k', 'a', '{"key": "x"}')`)
	err := b.refusal("select pawl_v1.job_enqueue_many('{q,q}', '{k,k}', '{a,b}', '{fresh,x}')")
	if err.Code != "P4002" || !strings.Contains(err.Detail, "stored_hash") || !strings.Contains(err.Detail, "given_hash") ||
		!strings.Contains(err.Message, "key x of queue q") {
		t.Errorf("got %s %s, %s", err.Code, err.Message, err.Detail)
	}
	single := b.refusal(`select pawl_v1.job_enqueue('q', 'k', 'b', '{"key": "x"}')`)
	if single.Detail != err.Detail {
		t.Errorf("one says %s, many say %s", single.Detail, err.Detail)
	}
	b.is("select count(*), (select count(*) from pawl.job_key) from pawl.job", "1 1")
}

// An invalid element fails with the same error as a single job, and nothing is enqueued.
func TestEnqueueMany_RefusesBadElements(t *testing.T) {
	t.Parallel()
	b := setup(t, "")
	long := "repeat('x', 256)"
	for arguments, code := range map[string]string{
		"'{q,null}', '{k,k}', '{a,a}'":                                                                         "P4000",
		"'{q,\"\"}', '{k,k}', '{a,a}'":                                                                         "P4000",
		"array['q', " + long + "], '{k,k}', '{a,a}'":                                                           "P4000",
		"'{q,q}', '{k,null}', '{a,a}'":                                                                         "P4000",
		"'{q,q}', array['k', " + long + "], '{a,a}'":                                                           "P4000",
		"'{q,q}', '{k,k}', '{a,a}', '{x,\"\"}'":                                                                "P4001",
		"'{q,q}', '{k,k}', '{a,a}', array['x', " + long + "]":                                                  "P4001",
		"'{q,q}', '{k,k}', '{a,a}', '{x,y}', '{null,short}'":                                                   "P4003",
		"'{q,q}', '{k,k}', '{a,null}'":                                                                         "P4004",
		"'{q,q}', '{k,k}', array['a', decode(repeat('00', 4194305), 'hex')]":                                   "P4004",
		"'{q,q}', '{k,k}', '{a,a}', p_priorities => '{null,5}'":                                                "P4004",
		"'{q,q}', '{k,k}', '{a,a}', p_priorities => '{null,0}'":                                                "P4004",
		"'{q,q}', '{k,k}', '{a,a}', p_retry_in_ms => '{null,-1}'":                                              "P4004",
		"'{q,q}', '{k,k}', '{a,a}', p_max_attempts => '{null,1001}'":                                           "P4004",
		"'{q,q}', '{k,k}', '{a,a}', p_headers => array['{}', '[]']::jsonb[]":                                   "P4004",
		"'{q,q}', '{k,k}', '{a,a}', '{x,y}', p_options => '{\"retention_ms\": 1}'":                             "P4004",
		"'{q,q}', '{k,k}', '{a,a}', p_options => '{\"priority\": 1}'":                                          "P4004",
		"'{q,q}', '{k}', '{a,a}'":                                                                              "P4004",
		"'{q,q}', null, '{a,a}'":                                                                               "P4004",
		"'{q}', '{k}', '{a,a}'":                                                                                "P4004",
		"'{q}', '{k}', '{a}', '{x,y}'":                                                                         "P4004",
		"'{q}', '{k}', '{a}', '{x}', array[sha256(''), sha256('')]":                                            "P4004",
		"'{q}', '{k}', '{a}', p_priorities => '{1,1}'":                                                         "P4004",
		"'{q}', '{k}', '{a}', p_retry_in_ms => '{}'":                                                           "P4004",
		"'{q}', '{k}', '{a}', p_max_attempts => '{1,1}'":                                                       "P4004",
		"'{q}', '{k}', '{a}', p_headers => '{}'":                                                               "P4004",
		"array_fill('q'::text, '{10001}'), array_fill('k'::text, '{10001}'), array_fill(''::bytea, '{10001}')": "P4004",
	} {
		if got := b.main.Do("select pawl_v1.job_enqueue_many(" + arguments + ")"); got != code {
			t.Errorf("%s: %s, want %s", arguments, got, code)
		}
	}
	b.is("select count(*), (select count(*) from pawl.job_key) from pawl.job", "0 0")
	b.is(`select pawl_v1.job_enqueue('q', 'k', '', '{"key": "x", "hash": "not hexadecimal"}')`, "P4003")
}

// Two batches with the same keys in opposite order wait for each other instead of deadlocking.
func TestEnqueueMany_ReversedKeysDoNotDeadlock(t *testing.T) {
	t.Parallel()
	b := setup(t, "")
	const slow = `create function public.slow() returns trigger language plpgsql as
'begin perform pg_advisory_xact_lock_shared(1, 1); return null; end'`
	exec1(t, b.url, slow+"; create trigger slow after insert on pawl.job_key for each row execute function public.slow()")
	const batch = "select e.outcome from pawl_v1.job_enqueue_many('{q,q}', '{k,k}', '{a,a}', '%') as e"
	b.do("select pg_advisory_lock(1, 1)") // both stop behind their first key
	one, two := b.open("one"), b.open("two")
	b.same(one.Do(strings.Replace(batch, "%", "{a,b}", 1)), blocked)
	b.same(two.Do(strings.Replace(batch, "%", "{b,a}", 1)), blocked)
	b.do("select pg_advisory_unlock(1, 1)")
	b.same(one.Wait(), "enqueued, enqueued")
	b.same(two.Wait(), "duplicate, duplicate")
}

// DO NOTHING returns no row, and the winner may be invisible (trap T14). The loser waits until the
// winner ends, then reads it, or owns the key if the winner rolled back (trap T70). A transaction
// with an older snapshot must start over.
func TestT14_LoserOfABatchReadsTheWinner(t *testing.T) {
	t.Parallel()
	const batch = "select e.outcome, e.job_id from pawl_v1.job_enqueue_many('{q,q}', '{k,k}', '{a,a}', '{x,y}') as e"
	for end, want := range map[string]string{"commit": "duplicate 1, duplicate 2", "rollback": "enqueued 3, enqueued 4"} {
		t.Run(end, func(t *testing.T) {
			t.Parallel()
			duels(t, "delete from pawl.job; alter table pawl.job alter column id restart", func(d *duel) {
				d.exactly(d.a.Do(batch), "enqueued 1, enqueued 2")
				d.exactly(d.b.Do(batch), blocked)
				d.a.Do(end)
				d.want(d.b.Wait(), want)
			})
		})
	}
}

// A unique violation aborts the whole transaction (trap T13). A duplicate does not.
func TestT13_DuplicatesLeaveTheTransactionUsable(t *testing.T) {
	t.Parallel()
	b := setup(t, `select pawl_v1.inbox_claim('c', 'm', sha256('')); select pawl_v1.job_enqueue('q', 'k', '', '{"key": "x"}')`)
	b.do("begin")
	b.is("select c.outcome from pawl_v1.inbox_claim('c', 'm', sha256('')) as c", "duplicate_ignored")
	b.is(`select e.outcome from pawl_v1.job_enqueue('q', 'k', '', '{"key": "x"}') as e`, "duplicate")
	b.is("select e.outcome from pawl_v1.job_enqueue_many('{q}', '{k}', array[''::bytea], '{x}') as e", "duplicate")
	b.is("select 'usable'", "usable")
}

// A no-op DO UPDATE writes a dead row for every duplicate (trap T15). Here a duplicate neither
// changes nor locks the row.
func TestT15_DuplicatesWriteNothing(t *testing.T) {
	t.Parallel()
	b := setup(t, `select pawl_v1.inbox_claim('c', 'm', sha256('')); select pawl_v1.job_enqueue('q', 'k', '', '{"key": "x"}')`)
	const rows = "select i.ctid::text, i.xmin::text, i.xmax::text, k.ctid::text, k.xmin::text, k.xmax::text from pawl.inbox as i, pawl.job_key as k"
	before := b.main.Do(rows)
	b.do("select pawl_v1.inbox_claim('c', 'm', sha256(''))")
	b.do(`select pawl_v1.job_enqueue('q', 'k', '', '{"key": "x"}')`)
	b.do("select pawl_v1.job_enqueue_many('{q}', '{k}', array[''::bytea], '{x}')")
	b.is(rows, before)
}

// Without options a job is inserted by another statement, but the rows are the same.
func TestEnqueue_DefaultsAreDefaults(t *testing.T) {
	t.Parallel()
	b := setup(t, `select pawl_v1.job_enqueue('q', 'k', 'a'); select pawl_v1.job_enqueue('q', 'k', 'a', '{}');
select pawl_v1.job_enqueue('q', 'k', 'a', '{"priority": null}'); select pawl_v1.job_enqueue_many('{q}', '{k}', '{a}');`)
	const rows = `select count(*), count(distinct to_jsonb(j) - '{id,created_at,available_at}'::text[]),
       bool_and(j.available_at between j.created_at - interval '1 second' and j.created_at + interval '1 second') from pawl.job as j`
	b.is(rows, "4 1 true")
	b.do(`delete from pawl.job; select pawl_v1.job_enqueue('q', 'k', 'a', '{"headers": {"h": 1}}');
select pawl_v1.job_enqueue('q', 'k', 'a', '{"headers": {"h": 1}, "priority": 2}');`)
	b.is(rows, "2 1 true")
	b.is(`select e.outcome, e.detail::text from pawl_v1.job_enqueue('q', 'k', 'a') as e`, "enqueued {}")
	for _, wrong := range []string{"null, 'k', 'a'", "'q', '', 'a'", "'q', 'k', null", "'q', 'k', 'a', null", `'q', 'k', 'a', '{"headers": 1}'`} {
		if e := b.refusal("select pawl_v1.job_enqueue(" + wrong + ")"); e.Code[:2] != "P4" {
			t.Errorf("%s: %v", wrong, e)
		}
	}
}
