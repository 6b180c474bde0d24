package schematest_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/pawl-go/pawl/internal/pace"
	"github.com/pawl-go/pawl/internal/testbed/patience"
	"github.com/pawl-go/pawl/pawltest"
)

// A key whose job has a row is never purged, in any state of the job. The others are purged when
// they expire, a bounded number per call.
func TestT24_T33_KeyPurge(t *testing.T) {
	t.Parallel()
	b := setup(t, `select pawl_v1.job_enqueue('q', 'k', '', jsonb_build_object('key', k)) from unnest('{pending,dead,gone,archived,young}'::text[]) as k;
select pawl_v1.job_enqueue('q', 'k', '', jsonb_build_object('key', 'm' || n)) from generate_series(1, 10) as n;
update pawl.job set status = 'dead_letter' where id = 2;
delete from pawl.job where id in (3, 4) or id > 5;
update pawl.job_key set created_at = created_at - interval '3 days', expires_at = expires_at - interval '3 days' where key <> 'young'`)
	purge := func(limit int) string {
		return fmt.Sprintf("select p.purged, p.detail ->> 'kept' from pawl_v1.job_key_purge(%d) as p", limit)
	}
	b.is("select c.due from pawl_v1.purge_count('job_key') as c", "12")
	b.is(purge(100), "12 2")
	b.is(purge(100), "0 <nil>") // the remaining keys get a new expiry and are not checked again
	b.is("select string_agg(k.key, ' ' order by k.key) from pawl.job_key as k", "dead pending young")
	b.is("select bool_and(k.expires_at > clock_timestamp() + interval '23 hours') from pawl.job_key as k where k.key <> 'young'", "true")
	b.is("select e.outcome, e.job_id from pawl_v1.job_enqueue('q', 'k', '', '{\"key\": \"dead\"}') as e", "duplicate 2")
	b.is("select e.outcome from pawl_v1.job_enqueue('q', 'k', '', '{\"key\": \"gone\"}') as e", "enqueued")
	for _, bad := range []string{"0", "10001", "1, '{\"older_than_ms\": -1}'", "1, '{\"older\": 1}'"} {
		b.is("select pawl_v1.job_key_purge("+bad+")", "P4004")
	}
}

// A job may end or be retried between the check and the delete. The purge decides by what its
// delete sees.
func TestKeyPurge_LeavesWhatIsLocked(t *testing.T) {
	t.Parallel()
	b := setup(t, `select pawl_v1.job_enqueue('q', 'k', '', '{"key": "a"}'), pawl_v1.job_enqueue('q', 'k', '', '{"key": "b"}');
delete from pawl.job;
update pawl.job_key set created_at = created_at - interval '3 days', expires_at = expires_at - interval '3 days'`)
	other := b.open("other")
	other.Do("begin")
	other.Do("select from pawl.job_key as k where k.key = 'a' for update")
	b.is("select p.purged from pawl_v1.job_key_purge() as p", "1")
	other.Do("rollback")
	b.is("select p.purged from pawl_v1.job_key_purge() as p", "1")
}

// Replay counts of scopes without a command, and fences without a recent write, are purged. The
// others stay.
func TestPurge_ReplaysAndFences(t *testing.T) {
	t.Parallel()
	b := setup(t, `select pawl_v1.command_claim('used', 'k', sha256('')), pawl_v1.command_replayed('{used,idle,fresh}', '{1,1,1}');
update pawl.replay set updated_at = now() - interval '3 days' where scope <> 'fresh';
select pawl_v1.fence_accept('old', 7), pawl_v1.fence_accept('new', 7);
update pawl.fence set seen_at = now() - interval '3 days' where resource = 'old'`)
	for _, table := range []string{"replay", "fence"} {
		b.is(fmt.Sprintf(`select c.due from pawl_v1.purge_count('%s', '{"older_than_ms": 86400000}') as c`, table), "1")
		b.is(fmt.Sprintf("select p.purged from pawl_v1.%s_purge(86400000) as p", table), "1")
		b.is(fmt.Sprintf("select p.purged from pawl_v1.%s_purge(86400000) as p", table), "0")
		b.is(fmt.Sprintf("select pawl_v1.%s_purge(null)", table), "P4004")
		b.is(fmt.Sprintf("select pawl_v1.%s_purge(1, 0)", table), "P4004")
	}
	b.is("select string_agg(r.scope, ' ' order by r.scope) from pawl.replay as r", "fresh used")
	b.is("select string_agg(f.resource, ' ') from pawl.fence as f", "new")
}

// purge_count returns the number of rows that a purge deletes.
func TestPurgeCount(t *testing.T) {
	t.Parallel()
	b := setup(t, `select pawl_v1.command_claim('s', n::text, sha256('')), pawl_v1.inbox_claim('c', n::text, sha256('')), pawl_v1.delivery_keep('c', n::text, '') from generate_series(1, 9) as n;
select pawl_v1.command_succeed('s', c.key, c.fence) from pawl.command as c where c.key <> '1';
update pawl.command set created_at = now() - interval '3 days', expires_at = now() - interval '2 days';
update pawl.inbox set received_at = now() - interval '3 days';
update pawl.delivery set received_at = now() - interval '3 days';
update pawl.inbox set job_id = 1 where key = '1';
insert into pawl.job (queue, kind, payload) values ('q', 'k', '');
insert into pawl.step (scope, key, step, hash, recovery, provider_key, status, created_at, expires_at)
select 'job/q', n::text, 's', sha256(''), 'keyed', 'p', case n when 1 then 'unknown' else 'succeeded' end, now() - interval '3 days', now() - interval '2 days' from generate_series(1, 5) as n`)
	for table, of := range map[string]struct{ options, purge, want string }{
		"command":  {"{}", "command_purge()", "8"},
		"step":     {"{}", "step_purge()", "4"},
		"inbox":    {`{"consumer": "c", "older_than_ms": 1000, "unreported": true}`, `inbox_purge('c', 1000, 1000, '{"unreported": true}')`, "8"},
		"delivery": {`{"consumer": "c", "older_than_ms": 1000}`, "delivery_purge('c', 1000)", "9"},
	} {
		b.is(fmt.Sprintf("select c.due from pawl_v1.purge_count('%s', '%s') as c", table, of.options), of.want)
		b.is("select p.purged from pawl_v1."+of.purge+" as p", of.want)
		b.is(fmt.Sprintf("select c.due from pawl_v1.purge_count('%s', '%s') as c", table, of.options), "0")
	}
	for _, bad := range []string{"'gate'", "'inbox'", "'fence'", "null", `'inbox', '{"older_than_ms": 1}'`} {
		if got := b.main.Do("select pawl_v1.purge_count(" + bad + ")"); got != "P4004" && got != "P4000" {
			t.Errorf("%s: %s", bad, got)
		}
	}
}

// purgeRows is how many expired keys TestPurge_HoldsNoLockForLong purges, while purgeRate enqueues
// a second run, each with a lock timeout of purgeWait ms. For the documented bar, set
// PAWL_PURGE_ROWS=1000000 PAWL_PURGE_RATE=2000 PAWL_PURGE_WAIT=50 on an otherwise idle machine.
var (
	purgeRows = number("PAWL_PURGE_ROWS", 10_000)
	purgeRate = number("PAWL_PURGE_RATE", 200)
	purgeWait = number("PAWL_PURGE_WAIT", 2000)
)

func number(variable string, otherwise int) int {
	if n, err := strconv.Atoi(os.Getenv(variable)); err == nil {
		return n
	}
	return otherwise
}

// While expired keys are purged, others enqueue with their own keys and with keys that are being
// purged. If a purge held its rows for long, an enqueue would exceed its lock timeout, which must
// not happen. Each batch is measured as well. At the end the young keys exist, the expired ones do
// not, and no key of a job with a row is gone.
func TestPurge_HoldsNoLockForLong(t *testing.T) {
	t.Parallel()
	url := pawltest.URL(t)
	conn := connect(t, url)
	exec := func(script string, args ...any) {
		t.Helper()
		if _, err := conn.Exec(t.Context(), script, args...); err != nil {
			t.Fatal(err)
		}
	}
	exec(`insert into pawl.job (queue, kind, payload) select 'kept', 'k', '' from generate_series(1, 100)`)
	exec(`insert into pawl.job_key (queue, key, hash, job_id, created_at, expires_at)
select 'q', 'old ' || n, pawl_v1._job_hash('k', ''), case when n % 1000 = 0 then 1 + n / 1000 % 100 else 0 end, now() - interval '20 days' + n * interval '1 second',
       now() - interval '19 days' + n * interval '1 second' from generate_series(1, $1::int) as n`, purgeRows)
	exec("analyze pawl.job_key")

	done, stop := context.WithCancel(t.Context())
	var inserts sync.WaitGroup
	var mu sync.Mutex
	var waits []time.Duration
	inserted := 0
	const writers = 4
	for w := range writers {
		writer := connect(t, url)
		if _, err := writer.Exec(t.Context(), fmt.Sprintf("set lock_timeout = %d; set synchronous_commit = off", purgeWait)); err != nil {
			t.Fatal(err)
		}
		inserts.Go(func() {
			for i := 0; done.Err() == nil; i++ {
				patience.Elapse(time.Second * writers / time.Duration(purgeRate))
				key := fmt.Sprintf("new %d %d", w, i)
				if i%10 == 0 { // an expired key: a duplicate, or new again
					key = fmt.Sprintf("old %d", 1+(i*writers+w)*7%purgeRows)
				}
				began := time.Now()
				_, err := writer.Exec(context.WithoutCancel(done), "select pawl_v1.job_enqueue('q', 'k', '', jsonb_build_object('key', $1::text))", key)
				mu.Lock()
				waits = append(waits, time.Since(began))
				inserted++
				mu.Unlock()
				if err != nil {
					t.Errorf("key %s: %v", key, err)
					return
				}
			}
		})
	}
	began, purged, kept := time.Now(), 0, 0
	var batches []time.Duration
	var size pace.Pace // every purge paces itself like this
	for next := "-infinity"; ; {
		one, rows := time.Now(), size.Rows()
		var n, k int
		if err := conn.QueryRow(t.Context(), `select p.purged, coalesce((p.detail ->> 'kept')::int, 0), coalesce(p.detail ->> 'next', '')
  from pawl_v1.job_key_purge($2, jsonb_build_object('since', $1::text)) as p`, next, rows).Scan(&n, &k, &next); err != nil {
			t.Fatal(err)
		}
		size.Took(time.Since(one))
		batches = append(batches, time.Since(one))
		purged, kept = purged+n, kept+k
		if n+k < rows {
			break
		}
		patience.Elapse(4 * time.Since(one))
	}
	took := time.Since(began)
	stop()
	inserts.Wait()
	slices.Sort(batches)
	slices.Sort(waits)
	t.Logf("purged %d, kept %d in %v (%d batches, median %v, of 100 one above %v, longest %v) under %.0f enqueues a second (p99 %v, longest %v)", purged, kept, took.Round(time.Millisecond),
		len(batches), batches[len(batches)/2], batches[len(batches)*99/100], batches[len(batches)-1], float64(inserted)/took.Seconds(), waits[len(waits)*99/100], waits[len(waits)-1])
	if kept != purgeRows/1000 || purged < purgeRows*9/10 {
		t.Errorf("purged %d, kept %d of %d", purged, kept, purgeRows)
	}
	var left, orphaned int
	err := conn.QueryRow(t.Context(), `select count(*) filter (where k.expires_at < now()), (select count(*) from pawl.job as j where j.queue = 'q' and not exists (select from pawl.job_key as o where o.job_id = j.id))
  from pawl.job_key as k`).Scan(&left, &orphaned)
	if err != nil || left != 0 || orphaned != 0 {
		t.Errorf("%d expired keys are left, %d jobs have lost theirs, %v", left, orphaned, err)
	}
}
