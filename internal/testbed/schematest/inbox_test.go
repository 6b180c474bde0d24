package schematest_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-go/pawl"
)

// A claim of many returns a row where a claim of one raises, and each key has its own outcome.
func TestInboxClaimMany_EachHasItsAnswer(t *testing.T) {
	t.Parallel()
	b := setup(t, `select pawl_v1.inbox_claim('c', 'seen', sha256('p')); begin; select pawl_v1.inbox_claim('c', 'stored', sha256('p'));
select pawl_v1.inbox_store('c', 'stored', 'q', 'k', ''); commit; select pawl_v1.inbox_claim('other', 'fresh', sha256('p'))`)
	const p, o = "sha256('p')", "sha256('o')"
	b.is("select c.n, c.outcome, c.job_id, c.detail ? 'stored_hash' from pawl_v1.inbox_claim_many('c', '{z,seen,stored,fresh,z,fresh,seen}', array["+
		p+","+p+","+p+","+p+","+p+","+o+","+o+"]) as c",
		"1 processed <nil> false, 2 duplicate_ignored <nil> false, 3 duplicate_ignored 1 false, 4 processed <nil> false, "+
			"5 duplicate_ignored <nil> false, 6 mismatch <nil> true, 7 mismatch <nil> true")
	b.is("select string_agg(i.key, ' ' order by i.key) from pawl.inbox as i where i.consumer = 'c'", "fresh seen stored z")
	b.is("select count(*) from pawl_v1.inbox_claim_many('c', '{}', '{}') as c", "0")
	for call, want := range map[string]string{
		"'c', '{a,b}', array[" + p + "]": "P4004", "'', '{a}', array[" + p + "]": "P4000", "'c', '{\"\"}', array[" + p + "]": "P4001",
		"'c', '{a}', array['x'::bytea]": "P4003", "'c', array_fill('a'::text, '{1001}'), array_fill(" + p + ", '{1001}')": "P4004",
		"'c', '{NULL}', array[" + p + "]": "P4001", "'c', null, null, '{\"x\": 1}'": "P4004",
	} {
		b.is("select pawl_v1.inbox_claim_many("+call+")", want)
	}
}

// A duplicate returns the result_ref of the first claim, not its own. That holds for a claim of
// one, a claim of many, and a delivery that a job owns.
func TestInboxClaim_AnswersADuplicateWithTheFirstReference(t *testing.T) {
	t.Parallel()
	b := setup(t, `select pawl_v1.inbox_claim('c', 'none', sha256('p'));
begin; select pawl_v1.inbox_claim('c', 'stored', sha256('p'), '{"result_ref": "order 2"}'); select pawl_v1.inbox_store('c', 'stored', 'q', 'k', ''); commit`)
	claim := func(options string) string {
		return "select c.outcome, c.result_ref from pawl_v1.inbox_claim('c', 'm', sha256('p'), '" + options + "') as c"
	}
	b.is(claim(`{"result_ref": "order 1"}`), "processed order 1")
	b.is(claim("{}"), "duplicate_ignored order 1")
	b.is(claim(`{"result_ref": "order 9"}`), "duplicate_ignored order 1")
	b.is("select c.n, c.outcome, c.result_ref from pawl_v1.inbox_claim_many('c', '{m,none,stored,new}', array_fill(sha256('p'), '{4}')) as c",
		"1 duplicate_ignored order 1, 2 duplicate_ignored <nil>, 3 duplicate_ignored order 2, 4 processed <nil>")
}

// A key that another transaction holds does not block the others: they are claimed at once by this
// transaction.
func TestInboxClaimMany_SkipsHeldKeys(t *testing.T) {
	t.Parallel()
	b := setup(t, "")
	holder := b.open("holder")
	holder.Do("begin")
	holder.Do("select pawl_v1.inbox_claim('c', 'm50', sha256('p'))")
	b.do("begin")
	got := b.main.Do("select c.outcome, count(*) from pawl_v1.inbox_claim_many('c', array(select 'm' || g from generate_series(1, 100) as g), array_fill(sha256('p'), '{100}')) as c group by 1 order by 1")
	if got == blocked {
		got = b.main.Wait()
	}
	b.same(got, "in_progress 1, processed 99")
	b.is("show lock_timeout", "0")
	// It belongs to this transaction, also after an exception block.
	b.is("select l.outcome from pawl_v1.inbox_store('c', 'm7', 'q', 'k', '') as l", "stored")
	b.do("commit")
	holder.Do("commit")
	b.is("select count(*) from pawl.inbox", "100")
}

// A purge never deletes the row of a delivery that a job still owns, at any age, and at most the
// requested number of rows. It deletes the others by age alone (traps T24, T33).
func TestT24_T33_InboxPurge(t *testing.T) {
	t.Parallel()
	b := setup(t, `begin; select pawl_v1.inbox_claim('c', m, sha256('')), pawl_v1.inbox_store('c', m, 'q', 'k', '') from unnest('{pending,dead,gone}'::text[]) as m; commit;
update pawl.job set status = 'dead_letter' where id = 2; delete from pawl.job where id = 3;
select pawl_v1.inbox_claim('c', 'm' || g, sha256('')) from generate_series(1, 10) as g;
select pawl_v1.inbox_claim('other', 'm', sha256(''));
update pawl.inbox set received_at = received_at - interval '2 days';
select pawl_v1.inbox_claim('c', 'new', sha256(''))`)
	purge := func(limit int) string {
		return fmt.Sprintf("select p.outcome, p.purged from pawl_v1.inbox_purge('c', 86400000, %d, '{\"unreported\": true}') as p", limit)
	}
	b.is(purge(7), "purged 7")
	b.is(purge(7), "purged 4")
	b.is(purge(7), "purged 0")
	b.is("select string_agg(i.key, ' ' order by i.key) from pawl.inbox as i where i.consumer = 'c'", "dead new pending")
	b.is("select count(*) from pawl.inbox as i where i.consumer = 'other'", "1")
	for _, bad := range []string{"'', 1", "'c', null", "'c', -1", "'c', 1, 0", "'c', 1, 10001", "'c', 1, null"} {
		if got := b.main.Do("select pawl_v1.inbox_purge(" + bad + ")"); got != "P4004" && got != "P4000" {
			t.Errorf("%s: %s", bad, got)
		}
	}
}

// A consumer that only calls the functions and never reported its retention keeps its rows, unless
// the caller overrides that. Its source may still redeliver them.
func TestInboxPurge_OfAConsumerThatNeverReported(t *testing.T) {
	t.Parallel()
	b := setup(t, `select pawl_v1.inbox_claim('c', g::text, sha256('')) from generate_series(1, 2) as g;
update pawl.inbox set received_at = received_at - key::int * interval '10 days'`)
	purge := func(age, options string) string {
		return "select p.purged from pawl_v1.inbox_purge('c', " + age + ", 1000, '" + options + "') as p"
	}
	count := func(options string) string {
		return `select c.due from pawl_v1.purge_count('inbox', '{"consumer": "c", "older_than_ms": 86400000}' || '` + options + "'::jsonb) as c"
	}
	b.is(purge("1209599999", "{}"), "P4004")
	b.is(count("{}"), "P4004")
	b.is(purge("86400000", `{"unreported": false}`), "P4004")
	b.is(purge("1209600000", "{}"), "1")
	b.is(count(`{"unreported": true}`), "1")
	b.is(purge("86400000", `{"unreported": true}`), "1")
	b.do("select pawl_v1.inbox_claim('d', 'm', sha256('')), pawl_v1.consumer_report('d', 1000); update pawl.inbox set received_at = received_at - interval '1 day'")
	b.is("select p.purged from pawl_v1.inbox_purge('d', 1000) as p", "1") // it has reported
}

// Of several programs, the longest reported retention applies until that program has not reported
// for ten minutes. Unlimited is the longest. Until then neither a purge nor an operator can delete
// rows within it, unless the consumer has retired (trap T37).
func TestT37_ConsumerReport(t *testing.T) {
	t.Parallel()
	b := setup(t, "select pawl_v1.inbox_claim('c', 'm', sha256('')); update pawl.inbox set received_at = received_at - interval '2 days'")
	report := func(window string) string {
		return "select r.outcome, r.window_ms from pawl_v1.consumer_report('c', " + window + ") as r"
	}
	purge := "select p.outcome, p.purged from pawl_v1.inbox_purge('c', 86400000) as p"
	count := `select c.due from pawl_v1.purge_count('inbox', '{"consumer": "c", "older_than_ms": 86400000}') as c`
	refused := func() {
		t.Helper()
		b.is(purge, "P4004")
		b.is(count, "P4004")
	}
	b.is(report("86400001, '{\"horizon_ms\": 5}'"), "reported 86400001")
	refused()
	b.is(report("1000"), "outlasted 86400001")
	b.is("select c.window_ms, c.horizon_ms from pawl.consumer as c", "86400001 5")
	b.is(report("null"), "reported <nil>")
	refused()
	b.is(report("86400001"), "outlasted <nil>")
	b.main.Do("update pawl.consumer set seen_at = seen_at - interval '11 minutes'")
	b.is(report("172800000"), "reported 172800000")
	refused()
	b.is(count[:len(count)-len("86400000}') as c")]+"172800000}') as c", "1")
	// Every message that may still arrive is now too old to be processed.
	b.main.Do("update pawl.consumer set seen_at = seen_at - interval '3 days'")
	b.is(count, "1")
	b.is(purge, "purged 1")
	for _, bad := range []string{"'', 1", "'c', 0", "'c', 315360000001", `'c', 1, '{"horizon": 1}'`, `'c', 1, '{"horizon_ms": 0}'`} {
		if got := b.main.Do("select pawl_v1.consumer_report(" + bad + ")"); got != "P4004" && got != "P4000" {
			t.Errorf("%s: %s", bad, got)
		}
	}
}

// Of two concurrent reports the longer applies, in either order of commits.
func TestConsumerReport_AtOnce(t *testing.T) {
	t.Parallel()
	for _, order := range [][2]string{{"2000", "1000"}, {"1000", "2000"}} {
		b := setup(t, "")
		first, second := b.open("first"), b.open("second")
		first.Do("begin; select pawl_v1.consumer_report('c', " + order[0] + ")")
		b.same(second.Do("select r.window_ms from pawl_v1.consumer_report('c', "+order[1]+") as r"), "blocked")
		first.Do("commit")
		b.same(second.Wait(), "2000")
		b.is("select c.window_ms from pawl.consumer as c", "2000")
	}
}

// A claim of a key that is being purged gets a result within the 50 ms of its lock timeout, and
// never a wrong one.
func TestInboxPurge_BlocksNoClaim(t *testing.T) {
	t.Parallel()
	const rows = 20000
	b := setup(t, fmt.Sprintf(`insert into pawl.inbox (consumer, key, hash, processed_at, received_at)
select 'c', 'm' || g, sha256(''), now(), now() - interval '2 days' from generate_series(1, %d) as g`, rows))
	var purged, claimed, late, longest atomic.Int64
	var all sync.WaitGroup
	for range 2 {
		conn := connect(t, b.url)
		all.Go(func() {
			for n := 1000; n > 0; {
				start := time.Now()
				if err := conn.QueryRow(t.Context(), `select p.purged from pawl_v1.inbox_purge('c', 86400000, 1000, '{"unreported": true}') as p`).Scan(&n); err != nil {
					t.Error(err)
					return
				}
				purged.Add(int64(n))
				longest.Store(max(longest.Load(), time.Since(start).Milliseconds()))
			}
		})
	}
	for part := range 4 {
		conn := connect(t, b.url)
		all.Go(func() {
			for id := 1 + part; id <= rows; id += 4 {
				var outcome string
				err := conn.QueryRow(t.Context(), "select c.outcome from pawl_v1.inbox_claim('c', $1, sha256('')) as c", fmt.Sprint("m", id)).Scan(&outcome)
				switch {
				case outcome == "processed":
					claimed.Add(1)
				case pawl.CodeOf(err) == "55P03":
					late.Add(1)
				case outcome != "duplicate_ignored":
					t.Errorf("m%d: %q, %v", id, outcome, err)
					return
				}
			}
		})
	}
	all.Wait()
	if late.Load() > 0 && longest.Load() < 40 { // otherwise the machine is too busy for a result
		t.Errorf("%d claims waited for 50 ms, the longest purge took %d", late.Load(), longest.Load())
	}
	b.is("select count(*) from pawl.inbox", fmt.Sprint(rows-purged.Load()+claimed.Load()))
	t.Logf("%d purged, %d claimed anew", purged.Load(), claimed.Load())
}

// An operator can forget a delivery, with an audit record, and it runs again. The call is refused
// while a job owns the delivery, in any state.
func TestInboxForget(t *testing.T) {
	t.Parallel()
	b := setup(t, `select pawl_v1.inbox_claim('c', 'seen', sha256('p')); begin; select pawl_v1.inbox_claim('c', 'stored', sha256('p'));
select pawl_v1.inbox_store('c', 'stored', 'q', 'k', ''); commit`)
	const forget = "select f.outcome, f.detail ->> 'status' from pawl_v1.inbox_forget('c', '%s', 'ann', 'a reason') as f"
	b.is(fmt.Sprintf(forget, "none"), "absent <nil>")
	b.is(fmt.Sprintf(forget, "seen"), "forgotten <nil>")
	b.is(fmt.Sprintf(forget, "seen"), "absent <nil>")
	b.is("select c.outcome from pawl_v1.inbox_claim('c', 'seen', sha256('another')) as c", "processed")
	b.is("select a.actor, a.verb, a.target, a.reason, a.before ->> 'consumer', a.before ->> 'key', a.before ? 'hash', a.after is null from pawl.audit as a",
		"ann inbox_forget inbox c seen a reason c seen true true")

	b.is(fmt.Sprintf(forget, "stored"), "refused pending")
	b.do("select pawl_v1.job_claim('q', null)")
	b.is(fmt.Sprintf(forget, "stored"), "refused processing")
	b.do("select pawl_v1.job_fail(1, 1, '{\"error\": \"no\"}', '{\"final\": true}')")
	b.is("select f.outcome, f.detail ->> 'job', f.detail ->> 'hint' like '%discard%' from pawl_v1.inbox_forget('c', 'stored', 'ann', 'r') as f", "refused 1 true")
	b.do("select pawl_v1.job_discard(1, 'ann', 'r')")
	b.is(fmt.Sprintf(forget, "stored"), "forgotten <nil>")
	for call, want := range map[string]string{"'', 'm', 'a', 'r'": "P4000", "'c', '', 'a', 'r'": "P4001", "'c', 'm', '', 'r'": "P4004", "'c', 'm', 'a', ''": "P4004"} {
		b.is("select pawl_v1.inbox_forget("+call+")", want)
	}
}

// If an attempt settles the delivery at this moment, forgetting waits for it. Then it forgets the
// effect that was committed, not work in progress.
func TestInboxForget_WaitsForTheAttempt(t *testing.T) {
	t.Parallel()
	b := setup(t, patient+"begin; select pawl_v1.inbox_claim('c', 'm', sha256('p')); select pawl_v1.inbox_store('c', 'm', 'q', 'k', ''); commit; select pawl_v1.job_claim('q', null)")
	attempt := b.open("attempt")
	for _, step := range []string{"begin", "select pawl_v1.job_hold(1, 1)", "select pawl_v1.inbox_settle('c', 'm', 1)", "select pawl_v1.job_finish(1, 1)"} {
		attempt.Do(step)
	}
	operator := b.open("operator")
	if got := operator.Do("select f.outcome from pawl_v1.inbox_forget('c', 'm', 'ann', 'r') as f"); got != blocked {
		t.Fatalf("it did not wait: %s", got)
	}
	attempt.Do("commit")
	b.same(operator.Wait(), "forgotten")
}

// A reservation belongs to a job that is processing or waits for a verdict. Another job takes it
// over from a job in any other state.
func TestInboxReserve(t *testing.T) {
	t.Parallel()
	b := setup(t, "select pawl_v1.job_enqueue_many('{q,q}', '{k,k}', array[''::bytea, '']); select pawl_v1.job_claim('q', null, 2)")
	reserve := func(job int) string {
		return fmt.Sprintf("select r.outcome, r.job_id, r.detail ->> 'status' from pawl_v1.inbox_reserve('c', 'k', sha256(''), %d) as r", job)
	}
	b.is(reserve(1), "reserved 1 <nil>")
	b.is(reserve(1), "reserved 1 <nil>")
	b.is(reserve(2), "in_progress 1 processing")
	b.is("select i.processed_at is null, i.job_id from pawl.inbox as i", "true 1")
	for status, want := range map[string]string{"unknown": "in_progress 1 unknown", "pending": "reserved 2 <nil>", "dead_letter": "reserved 2 <nil>", "cancelled": "reserved 2 <nil>"} {
		b.do("update pawl.inbox set job_id = 1")
		b.do("update pawl.job set status = '" + status + "', claimed_by = null, lease_expires_at = null where id = 1")
		b.is(reserve(2), want)
	}
	b.do("update pawl.inbox set job_id = 2")
	b.is("select u.outcome from pawl_v1.inbox_unreserve('c', 'k', 1) as u", "absent")
	b.is("select u.outcome from pawl_v1.inbox_unreserve('c', 'k', 2) as u", "unreserved")
	b.is(reserve(1), "reserved 1 <nil>")
	b.do("delete from pawl.job where id = 1")
	b.is(reserve(2), "reserved 2 <nil>")
}

// Of two jobs that reserve a key concurrently, one gets it, at every isolation level. After the
// reservation it sees what the previous holder wrote.
func TestInboxReserve_OneHasIt(t *testing.T) {
	t.Parallel()
	for _, level := range []string{"read committed", "repeatable read", "serializable"} {
		t.Run(level, func(t *testing.T) {
			t.Parallel()
			b := setup(t, "select pawl_v1.job_enqueue_many('{q,q}', '{k,k}', array[''::bytea, '']); select pawl_v1.job_claim('q', null, 2); select pawl_v1.inbox_reserve('c', 'k', sha256(''), 1)")
			first, second := b.open("first"), b.open("second")
			second.Do("begin isolation level " + level)
			second.Do("select pawl_v1.job_hold(2, 1)") // takes the snapshot
			first.Do("begin isolation level " + level)
			first.Do("select pawl_v1.job_hold(1, 1)")
			first.Do("select pawl_v1.inbox_claim('c', 'effect', sha256(''))")
			first.Do("select pawl_v1.inbox_unreserve('c', 'k', 1)")
			first.Do("select pawl_v1.job_finish(1, 1)")
			first.Do("commit")
			got := second.Do("select r.outcome from pawl_v1.inbox_reserve('c', 'k', sha256(''), 2) as r")
			if got == "reserved" {
				got = second.Do("select c.outcome from pawl_v1.inbox_claim('c', 'effect', sha256('')) as c")
			}
			if want := map[bool]string{true: "duplicate_ignored", false: "40001"}[level == "read committed"]; got != want {
				t.Errorf("%s, want %s", got, want)
			}
		})
	}
}

// An audit target fits into its 255 octets also if the names have multi-byte characters. Names that
// are not shortened are found literally.
func TestAuditTarget_CountsOctets(t *testing.T) {
	t.Parallel()
	b := setup(t, "")
	b.is("select pawl_v1._audit_target('inbox', 'c', 'm 1')", "inbox c m 1")
	const long = "repeat('é', 127)" // 254 octets
	b.is("select octet_length(pawl_v1._audit_target('x', left("+long+", 126) || 'y')), octet_length(pawl_v1._audit_target('xy', left("+long+", 126) || 'y'))", "255 67")
	b.is("select pawl_v1._audit_target('gate', "+long+", 'a b') <> pawl_v1._audit_target('gate', "+long+" || ' a', 'b')", "true")
	b.is("select r.outcome from pawl_v1.sequence_gate_reset("+long+", "+long+", 4, 'ann', 'r') as r", "reset")
	b.is("select a.target = pawl_v1._audit_target('gate', "+long+", "+long+"), octet_length(a.target), a.before ->> 'consumer' = "+long+", a.before ->> 'last', a.after ->> 'last' from pawl.audit as a",
		"true 69 true <nil> 4")
	b.do("select pawl_v1.inbox_claim(" + long + ", " + long + ", sha256('')), pawl_v1.inbox_forget(" + long + ", " + long + ", 'ann', 'r')")
	b.is("select octet_length(a.target), a.before ->> 'key' = "+long+" from pawl.audit as a where a.verb = 'inbox_forget'", "70 true")
}

// The copy of a job that is held again is a new waiting job. It keeps everything that was counted
// against the original.
func TestSequenceGateHoldAgain_CopiesTheJob(t *testing.T) {
	t.Parallel()
	b := setup(t, `begin; select pawl_v1.inbox_claim('c', 'm', sha256('p'));
select pawl_v1.inbox_store('c', 'm', 'q', 'k', 'payload', '{"headers": {"a": "b"}, "max_attempts": 7}'); commit;
select pawl_v1.job_claim('q', null);
update pawl.job set priority = 3, attempts = 2, crashes = 3, crashes_alone = 2, last_errors = '[{"error": "no"}]', created_at = created_at - interval '1 hour';
select pawl_v1.sequence_gate_hold_again('c', 'r', 7, 'm', 1, '{"retry_in_ms": 1000}')`)
	b.is(`select string_agg(o.key, ' ' order by o.key) from pawl.job as a, pawl.job as c, jsonb_each(to_jsonb(a)) as o, jsonb_each(to_jsonb(c)) as n
 where a.id = 1 and c.id <> 1 and o.key = n.key and o.value is distinct from n.value`, "attempts available_at claimed_by fence id lease_expires_at status")
}
