package schematest_test

import (
	"strings"
	"testing"

	"github.com/pawl-go/pawl/internal/stepper"
)

func claimCommand(payload, options string) string {
	return "select c.outcome from pawl_v1.command_claim('s', 'k', sha256('" + payload + "'), '" + options + "') as c"
}

const (
	inOne      = `{"lease_ms": null}`
	commandRow = "select c.status, c.attempts, c.lease_expires_at is null from pawl.command as c"
	ageLeases  = "update pawl.command set lease_expires_at = now() - interval '1 minute'"
)

// A lease lasts 300 s unless the caller says otherwise: a new claim, a takeover and a renewal.
func TestCommand_LeaseDefault(t *testing.T) {
	t.Parallel()
	b := setup(t, "")
	lease := func(from string) string {
		return "select r.outcome, r.lease_expires_at between now() + interval '300 s' and clock_timestamp() + interval '300 s' from pawl_v1." + from + " as r"
	}
	b.is(lease("command_claim('s', 'k', sha256('p'))"), "new_claim true")
	b.do(ageLeases)
	b.is(lease(`command_claim('s', 'k', sha256('p'), '{"repeatable": true}')`), "processing_stale true")
	b.do(ageLeases)
	b.is(lease("command_renew('s', 'k', (select c.fence from pawl.command as c))"), "renewed true")
}

// The six answers of a claim, and the seventh.
func TestCommand_Outcomes(t *testing.T) {
	t.Parallel()
	b := setup(t, "")
	end := func(call string) string { return "select e.outcome from " + call + " as e" }
	fence := "(select c.fence from pawl.command as c)"
	fail := func(options string) string {
		return end("pawl_v1.command_fail('s', 'k', " + fence + ", sha256('p'), '{\"error\": \"boom\", \"code\": \"X\"}', '" + options + "')")
	}
	b.is(claimCommand("p", "{}"), "new_claim")
	b.is("select c.outcome, c.retry_after_ms, c.attempts from pawl_v1.command_claim('s', 'k', sha256('p')) as c", "processing_active 1000 1")
	b.is(claimCommand("other", "{}"), "P4002") // before in progress
	b.is(claimCommand("p", `{"raise": true}`), "P4029")
	b.do(ageLeases)
	b.is(claimCommand("other", "{}"), "P4002")
	b.is(claimCommand("p", `{"repeatable": true}`), "processing_stale")
	b.is(fail("{}"), "failed_retryable")
	b.is(fail("{}"), "failed_retryable") // told twice
	b.is(commandRow, "failed_retryable 2 true")
	b.is("select c.outcome, c.attempts, c.failure_code, c.failure_message from pawl_v1.command_claim('s', 'k', sha256('p')) as c", "retryable_failure 3 X boom")
	b.do(ageLeases)
	b.is(claimCommand("p", "{}"), "unknown")
	b.is(claimCommand("p", `{"repeatable": true}`), "unknown")
	b.is(claimCommand("p", `{"raise": true}`), "P4031")
	b.is("select c.status, left(c.advice, 11) from pawl_v1.stale_commands as c", "unknown it may have")
	b.is("select s.outcome, s.detail from pawl_v1.command_settle('s', 'k', (select c.fence from pawl.command as c), 'not_executed', 'ann', 'asked the provider') as s", "settled map[status:failed_retryable]")
	b.is("select s.outcome from pawl_v1.command_settle('s', 'k', 1, 'executed', 'ann', 'r') as s", "refused")
	b.is("select s.outcome from pawl_v1.command_settle('s', 'x', 1, 'executed', 'ann', 'r') as s", "absent")
	b.is("select a.verb, a.target, a.before ->> 'status', a.after ->> 'status' from pawl.audit as a", "command_settle command s k unknown failed_retryable")
	b.is(claimCommand("p", "{}"), "retryable_failure")
	b.is("select s.outcome from pawl_v1.command_succeed('s', 'k', "+fence+", 'the result', 'the body', "+
		`'{"response_status": 201, "response_headers": {"Location": ["/1"]}, "result_ref_type": "order", "result_ref_id": "1"}') as s`, "succeeded")
	b.is("select c.outcome, convert_from(c.result, 'UTF8'), convert_from(c.response_body, 'UTF8'), c.response_status, c.response_headers, c.result_ref_type, c.result_ref_id, c.attempts from pawl_v1.command_claim('s', 'k', sha256('p')) as c",
		"replay_success the result the body 201 map[Location:[/1]] order 1 4")
	b.is("select pawl_v1.command_succeed('s', 'k', "+fence+")", "P4010")
	b.is("select pawl_v1.command_succeed('s', 'k', "+fence+" - 1)", "P4020")
	b.is("select pawl_v1.command_renew('s', 'k', "+fence+")", "P4020")
	b.is(fail("{}"), "P4011")
	b.do("delete from pawl.command")
	b.do(claimCommand("p", "{}"))
	b.is(fail(`{"final": true}`), "failed_final")
	b.is("select c.outcome, c.failure_message from pawl_v1.command_claim('s', 'k', sha256('p')) as c", "final_failure boom")
	b.is(claimCommand("p", `{"raise": true}`), "P4030")
	b.is("select s.first, s.retried, s.max, s.replays from pawl_v1.suppression_by_scope as s", "1 0 1 0")
	b.do("select pawl_v1.command_replayed('{s,s}', '{2,3}')")
	b.do("select pawl_v1.command_replayed('{s}', '{1}')")
	b.is("select s.replays from pawl_v1.suppression_by_scope as s", "6")
}

// What a mismatch, a conflict and a final failure tell a person.
func TestCommand_RefusalsSayWhatToDo(t *testing.T) {
	t.Parallel()
	b := setup(t, "select pawl_v1.command_claim('s', 'k', sha256('p'))")
	e := b.refusal(claimCommand("other", "{}"))
	if strings.Count(e.Detail, "148de9c5a7a44d19e56cd9ae1a554bf67847afb0c58f6e12fa29ac7ddfca9940") != 1 || !strings.Contains(e.Detail, "given_hash") || !strings.Contains(e.Hint, "new key") {
		t.Errorf("P4002 says %q, %q", e.Detail, e.Hint)
	}
	e = b.refusal(claimCommand("p", `{"raise": true}`))
	if e.Detail != `{"retry_after" : 1}` || !strings.Contains(e.Hint, "retry after") {
		t.Errorf("P4029 says %q, %q", e.Detail, e.Hint)
	}
	b.do("select pawl_v1.command_fail('s', 'k', c.fence, c.hash, '{\"error\": \"no stock\"}', '{\"final\": true}') from pawl.command as c")
	e = b.refusal(claimCommand("p", `{"raise": true}`))
	if !strings.Contains(e.Detail, "no stock") || !strings.Contains(e.Hint, "new key") {
		t.Errorf("P4030 says %q, %q", e.Detail, e.Hint)
	}
}

// While a transaction claims, others are told at once, or wait and read its answer; both without an error.
func TestCommand_TwoSessions(t *testing.T) {
	t.Parallel()
	for end, want := range map[string]string{"commit": "replay_success", "rollback": "new_claim"} {
		t.Run(end, func(t *testing.T) {
			t.Parallel()
			b := setup(t, "")
			other, third := b.open("other"), b.open("third")
			b.do("begin")
			b.is(claimCommand("p", inOne), "new_claim")
			b.is(claimCommand("p", inOne), "processing_active") // this very transaction, once more
			b.same(other.Do(claimCommand("p", inOne)), "processing_active")
			b.same(other.Do(claimCommand("other", "{}")), "processing_active") // the first one's payload is not visible yet
			b.same(other.Do(claimCommand("p", `{"lease_ms": null, "wait_ms": 60000}`)), stepper.Blocked)
			got := third.Do(claimCommand("p", `{"wait_ms": 20}`))
			if got == stepper.Blocked {
				got = third.Wait()
			}
			b.same(got, "processing_active")
			b.do("select pawl_v1.command_succeed('s', 'k', c.fence) from pawl.command as c")
			b.do(end)
			b.same(other.Wait(), want)
		})
	}
}

// A claim of the one-transaction form that is committed without an end: its rows may be durable, so nobody runs it again, not
// even who says that this is safe.
func TestCommand_ClaimWithoutEnd(t *testing.T) {
	t.Parallel()
	b := setup(t, "")
	b.is(claimCommand("p", inOne), "new_claim")
	b.is("select count(*) from pawl_v1.stale_commands", "1")
	b.is(claimCommand("p", `{"repeatable": true}`), "unknown")
	b.is("select s.outcome from pawl.command as c, pawl_v1.command_succeed('s', 'k', c.fence) as s", "succeeded")
	b.is(claimCommand("p", "{}"), "replay_success")
}

// A replay neither writes nor locks (trap T15), nor does it wait for anybody, whoever has the row.
func TestT15_ReplaysWriteNothing(t *testing.T) {
	t.Parallel()
	b := setup(t, "select pawl_v1.command_claim('s', 'k', sha256('p')); select pawl_v1.command_succeed('s', 'k', c.fence) from pawl.command as c")
	holder := b.open("holder")
	holder.Do("begin")
	holder.Do("select from pawl.command as c for update")
	before := b.main.Do("select c.xmin, c.xmax, c.ctid from pawl.command as c")
	b.do("begin read only")
	b.is(claimCommand("p", "{}"), "replay_success")
	b.is("select pg_current_xact_id_if_assigned() is null, count(*) from pg_locks as l where l.pid = pg_backend_pid() and l.locktype = 'advisory'", "true 0")
	b.do("commit")
	holder.Do("rollback")
	b.is("select c.xmin, c.xmax, c.ctid from pawl.command as c", before)
}

// One time-to-live for lease and memory forgets the key with the lease (trap T1). Here the memory counts from the end, however
// long that took, and only what has ended is forgotten (trap T33), at most as many as asked (trap T24).
func TestT1_T33_PurgeForgetsWhatHasEnded(t *testing.T) {
	t.Parallel()
	b := setup(t, `
create function pg_temp.make(p_key text, p_end text) returns void language plpgsql as $$
declare
  v_fence bigint := (select c.fence from pawl_v1.command_claim('s', p_key, sha256('p'), '{"retention_ms": 3600000}') as c);
begin
  update pawl.command as c set created_at = now() - interval '3 days', expires_at = now() - interval '2 days' where c.key = p_key and p_end <> 'long';
  update pawl.command as c set created_at = now() - interval '3 days', expires_at = now() - interval '3 days' + interval '1 hour' where c.key = p_key and p_end = 'long';
  if p_end in ('succeeded', 'long') then
    perform pawl_v1.command_succeed('s', p_key, v_fence);
  elsif p_end like '%f%' then
    perform pawl_v1.command_fail('s', p_key, v_fence, sha256('p'), '{}', jsonb_build_object('final', p_end = 'final'));
  elsif p_end = 'unknown' then
    perform pawl_v1.command_fail('s', p_key, v_fence, sha256('p'), '{}', '{"unknown": true}');
  end if;
  update pawl.command as c set expires_at = now() - interval '1 day' where c.key = p_key and p_end <> 'long';
end $$;
select pg_temp.make('a', 'succeeded'), pg_temp.make('b', 'final'), pg_temp.make('c', 'succeeded'),
       pg_temp.make('d', 'failed'), pg_temp.make('e', 'unknown'), pg_temp.make('f', 'processing'), pg_temp.make('g', 'long')`)
	for _, want := range []string{"2", "1", "0"} {
		b.is("select p.purged from pawl_v1.command_purge(2) as p", want)
	}
	b.is("select string_agg(c.key || ' ' || c.status, ', ' order by c.key) from pawl.command as c",
		"d failed_retryable, e unknown, f processing, g succeeded")
	b.is("select pawl_v1.command_purge(0)", "P4004")
	b.do("delete from pawl.command")
	b.do("select pawl_v1.command_claim('s', 'k', sha256('p'), '{\"retention_ms\": 1000}')")
	b.do("select pawl_v1.command_succeed('s', 'k', c.fence) from pawl.command as c")
	b.do("update pawl.command set expires_at = now() + interval '1 millisecond', created_at = now()")
	b.until(b.main, "select c.expires_at < clock_timestamp() from pawl.command as c", "true")
	b.is(claimCommand("p", "{}"), "replay_success") // over, and answered as before until it is purged
	b.is("select p.purged from pawl_v1.command_purge(10) as p", "0")
	b.is(`select p.purged from pawl_v1.command_purge(10, '{"older_than_ms": 0}') as p`, "1")
	b.is(claimCommand("other", "{}"), "new_claim")
}

// Fences come from one sequence that no session keeps in stock, so they grow in the order of the claims.
func TestCommand_FencesAreDrawnOneByOne(t *testing.T) {
	t.Parallel()
	b := setup(t, "")
	b.is("select s.cache_size from pg_sequences as s where s.sequencename = 'fence_seq'", "1")
	b.is("select pawl_v1.command_fail('s', 'k', 17, sha256('p'), '{}')", "P4004") // never issued
}

// Waiters that give up, and those that are told, change nothing for the holder (trap T2); its own lease ended, its open
// transaction still has the command (trap T6).
func TestT2_ImpatientClaimsChangeNothing(t *testing.T) {
	t.Parallel()
	b := setup(t, "select pawl_v1.command_claim('s', 'k', sha256('p')); "+ageLeases)
	holder := b.open("holder")
	holder.Do("begin")
	b.same(holder.Do("select h.outcome from pawl.command as c, pawl_v1.command_hold('s', 'k', c.fence) as h"), "held")
	for _, options := range []string{"{}", `{"repeatable": true}`, `{"repeatable": true, "wait_ms": 10}`, inOne} {
		b.is(claimCommand("p", options), "processing_active")
	}
	b.same(holder.Do("select s.outcome from pawl.command as c, pawl_v1.command_succeed('s', 'k', c.fence) as s"), "succeeded")
	b.same(holder.Do("commit"), "")
	b.is(commandRow, "succeeded 1 true")
}

// In the one-transaction form claim and end are HOT: neither touches an index after the insert.
func TestCommand_OneTransactionStaysHot(t *testing.T) {
	t.Parallel()
	b := setup(t, "")
	for range 20 {
		b.do("begin; select pawl_v1.command_claim('s', gen_random_uuid()::text, sha256('p'), '" + inOne + "')")
		b.do("select pawl_v1.command_succeed('s', c.key, c.fence) from pawl.command as c where c.status = 'processing'")
		b.do("commit")
	}
	b.until(b.main, "select pg_stat_force_next_flush(), pg_stat_clear_snapshot(), s.n_tup_hot_upd from pg_stat_user_tables as s where s.relname = 'command'", "  20")
}
