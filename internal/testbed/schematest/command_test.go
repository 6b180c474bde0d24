package schematest_test

import (
	"strings"
	"testing"
)

func claimCommand(payload, options string) string {
	return "select c.outcome from pawl_v1.command_claim('s', 'k', sha256('" + payload + "'), '" + options + "') as c"
}

func openCommand(payload, options string) string {
	return "select c.outcome from pawl_v1.command_open('s', 'k', sha256('" + payload + "'), null, '" + options + "') as c"
}

const (
	// keepOpened opens a command and stores the result for closeOpened.
	keepOpened  = "create temp table opened on commit drop as select o.* from pawl_v1.command_open('s', 'k', sha256('p')) as o"
	closeOpened = "select c.outcome from opened as o, pawl_v1.command_close('s', 'k', sha256('p'), o.fence, o.xact, 'r') as c"
	// openClose executes a command in one statement.
	openClose = "select o.outcome, c.outcome from pawl_v1.command_open('s', 'k', sha256('p')) as o, pawl_v1.command_close('s', 'k', sha256('p'), o.fence, o.xact, 'r') as c"

	commandRow = "select c.status, c.attempts, c.lease_expires_at is null from pawl.command as c"
	ageLeases  = "update pawl.command set lease_expires_at = now() - interval '1 minute'"
)

// The default lease of a new claim, a takeover and a renewal is 300 s.
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

// All outcomes of a claim.
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
	b.is(claimCommand("other", "{}"), "mismatch") // takes precedence over processing_active
	b.is(claimCommand("p", `{"raise": true}`), "P4029")
	b.do(ageLeases)
	b.is(claimCommand("other", "{}"), "mismatch")
	b.is(claimCommand("p", `{"repeatable": true}`), "processing_stale")
	b.is(fail("{}"), "failed_retryable")
	b.is(fail("{}"), "failed_retryable") // a repeated call
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
	b.is("select pawl_v1.command_succeed('s', 'k', "+fence+")", "P4020")
	b.is("select pawl_v1.command_succeed('s', 'k', "+fence+" - 1)", "P4020")
	b.is("select pawl_v1.command_renew('s', 'k', "+fence+")", "P4020")
	b.is(fail("{}"), "P4020")
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

// The errors for a mismatch, a conflict and a final failure have a detail and a hint.
func TestCommand_RefusalsSayWhatToDo(t *testing.T) {
	t.Parallel()
	b := setup(t, "select pawl_v1.command_claim('s', 'k', sha256('p'))")
	b.is("select c.detail ->> 'stored_hash', c.detail ->> 'given_hash' = encode(sha256('other'), 'hex'), c.fence from pawl_v1.command_claim('s', 'k', sha256('other')) as c",
		"148de9c5a7a44d19e56cd9ae1a554bf67847afb0c58f6e12fa29ac7ddfca9940 true <nil>")
	b.is("select c.detail ->> 'stored_hash', c.detail ->> 'given_hash' = encode(sha256('other'), 'hex'), c.fence from pawl_v1.command_open('s', 'k', sha256('other')) as c",
		"148de9c5a7a44d19e56cd9ae1a554bf67847afb0c58f6e12fa29ac7ddfca9940 true <nil>")
	b.is(openCommand("other", `{"raise": true}`), "P4002")
	b.is(openCommand("p", `{"raise": true}`), "P4029")
	e := b.refusal(claimCommand("other", `{"raise": true}`))
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

// While a transaction has a command open, other calls return at once, or wait and read its result.
// Both happen without an error.
func TestCommand_TwoSessions(t *testing.T) {
	t.Parallel()
	for end, want := range map[string]string{"commit": "replay_success", "rollback": "new_claim"} {
		t.Run(end, func(t *testing.T) {
			t.Parallel()
			b := setup(t, "")
			other, third := b.open("other"), b.open("third")
			b.do("begin")
			b.do(keepOpened)
			b.is("select o.outcome, o.attempts, o.fence > 0, o.detail::text from opened as o", "new_claim 1 true {}")
			for _, options := range []string{"{}", `{"wait_ms": 0}`, `{"wait_ms": 0.4}`, `{"wait_ms": null}`} {
				b.same(other.Do(openCommand("p", options)), "processing_active")
			}
			b.same(other.Do(claimCommand("p", "{}")), "processing_active")
			// The first session's payload is not visible yet.
			b.same(other.Do(openCommand("other", "{}")), "processing_active")
			b.same(other.Do("begin"), "")
			b.same(other.Do(openCommand("p", `{"wait_ms": 60000}`)), blocked)
			got := third.Do(claimCommand("p", `{"wait_ms": 20}`))
			if got == blocked {
				got = third.Wait()
			}
			b.same(got, "processing_active")
			b.is("select count(*) from pawl.command", "0") // the row is written at the end
			b.is(closeOpened, "succeeded")
			b.do(end)
			b.same(other.Wait(), want)
		})
	}
}

// command_open returns the same outcomes as command_claim, but takes over no lease and does not
// overwrite a failure.
func TestCommand_OpenOutcomes(t *testing.T) {
	t.Parallel()
	b := setup(t, "select pawl_v1.command_claim('s', 'k', sha256('p'))")
	b.is("select o.outcome, o.retry_after_ms, o.fence, o.xact from pawl_v1.command_open('s', 'k', sha256('p')) as o", "processing_active 1000 1 <nil>")
	b.is(openCommand("other", "{}"), "mismatch")
	b.do("select pawl_v1.command_fail('s', 'k', c.fence, c.hash, '{\"error\": \"boom\", \"code\": \"X\"}') from pawl.command as c")
	b.do("begin")
	b.do(keepOpened)
	b.is("select o.outcome, o.attempts, o.fence, o.failure_code, o.failure_message from opened as o", "retryable_failure 2 2 X boom")
	b.is(commandRow, "failed_retryable 1 true")
	b.is(closeOpened, "succeeded")
	b.do("commit")
	b.is(commandRow, "succeeded 2 true")
	b.is("select o.outcome, o.fence, o.attempts, convert_from(o.result, 'UTF8'), o.failure_code, o.xact from pawl_v1.command_open('s', 'k', sha256('p')) as o", "replay_success 2 2 r <nil> <nil>")
	b.is("select o.outcome, o.result, o.fence, o.detail ->> 'given_hash' = encode(sha256('other'), 'hex') from pawl_v1.command_open('s', 'k', sha256('other')) as o", "mismatch <nil> <nil> true")
	b.do("delete from pawl.command")
	b.do("select pawl_v1.command_fail('s', 'k', 1, sha256('p'), '{\"error\": \"no stock\"}', '{\"final\": true}')")
	b.is("select o.outcome, o.failure_message from pawl_v1.command_open('s', 'k', sha256('p')) as o", "final_failure no stock")
	b.is(openCommand("p", `{"raise": true}`), "P4030")
	b.is(openCommand("other", `{"raise": true}`), "P4002")
	b.do("delete from pawl.command; select pawl_v1.command_claim('s', 'k', sha256('p')); " + ageLeases)
	b.is(openCommand("p", "{}"), "unknown")
	b.is(commandRow, "unknown 1 false")
	b.is(openCommand("p", `{"raise": true}`), "P4031")
	// The lease's own attempt can still succeed.
	b.is("select s.outcome from pawl.command as c, pawl_v1.command_succeed('s', 'k', c.fence) as s", "succeeded")
	b.is(openCommand("p", "{}"), "replay_success")
	b.is(openClose, "25000") // a replay cannot be closed, because its xact is null
}

// command_close finishes only a command that was opened in the same transaction under the same
// fence.
func TestCommand_CloseProvesItsTransaction(t *testing.T) {
	t.Parallel()
	b := setup(t, "create table opened (fence bigint, xact text)")
	b.do("begin")
	fence, xact, _ := strings.Cut(b.main.Do("select o.fence, o.xact from pawl_v1.command_open('s', 'k', sha256('p')) as o"), " ")
	b.do("rollback")
	b.do("insert into opened values (" + fence + ", '" + xact + "')")
	b.is(closeOpened, "25000") // opened in a transaction that has ended
	b.do("begin")
	b.do("update opened set xact = pg_current_xact_id()::text || ' ' || fence + 1")
	b.is(closeOpened, "25000") // another fence than the issued one
	b.do("rollback")
	b.is("select count(*) from pawl.command", "0")
	b.is(openClose, "new_claim succeeded")
}

// A transaction that opened a command cannot commit before the command is closed, in any form of
// COMMIT. It leaves nothing. The same holds if the command replaces a retryable failure. A
// replay does not prevent COMMIT.
func TestCommand_CommitNeedsAnEnd(t *testing.T) {
	t.Parallel()
	b := setup(t, "create table effect (n int)")
	for range 2 {
		// In autocommit.
		b.is("select o.outcome from pawl_v1.command_open('s', 'k', sha256('p')) as o", "2D000")
		for _, end := range []string{"commit", "end", "commit and chain", "insert into effect values (2); commit; begin; insert into effect values (3); commit"} {
			b.do("begin; insert into effect values (1)")
			b.do(keepOpened)
			b.is("savepoint a; create temp table x (n int); rollback to a", "")
			b.is(end, "2D000")
			b.do("rollback")
		}
		b.do("begin; insert into effect values (1)")
		b.is("select o.outcome is not null from pawl_v1.command_open('s', 'k', sha256('p')) as o", "true")
		b.is("prepare transaction 'x'", "0A000")
		b.is("do $$ begin perform pawl_v1.command_open('s', 'k', sha256('p')); commit; end $$", "2D000")
		b.is("select count(*) from effect", "0")
		b.do("delete from pawl.command; select pawl_v1.command_claim('s', 'k', sha256('p')); select pawl_v1.command_fail('s', 'k', c.fence, c.hash, '{}') from pawl.command as c")
	}
	b.do("begin")
	b.do(keepOpened)
	b.is("select f.outcome from opened as o, pawl_v1.command_fail('s', 'k', o.fence, sha256('p'), '{}') as f", "failed_retryable")
	b.is("commit", "")
	b.is(openClose, "retryable_failure succeeded")
	b.is("select o.outcome from pawl_v1.command_open('s', 'k', sha256('p')) as o", "replay_success")
}

// If the lock did not separate two attempts, the primary key would. The second close fails, and its
// rows are rolled back.
func TestCommand_ThePrimaryKeyStandsBehindTheLock(t *testing.T) {
	t.Parallel()
	b := setup(t, "create table effect (who text)")
	other := b.open("other")
	b.do("begin; savepoint a")
	b.do("create temp table opened on commit drop as select 0 as fence, '' as xact where false; savepoint b")
	b.do("insert into opened select o.fence, o.xact from pawl_v1.command_open('s', 'k', sha256('p')) as o")
	// Give this transaction an id outside of the part that is rolled back below.
	b.do("create temp table kept on commit drop as select 1")
	kept := b.main.Do("select o.fence, o.xact from opened as o")
	b.do("rollback to b") // releases the lock
	other.Do("begin; insert into effect values ('other')")
	b.same(other.Do(openClose), "new_claim succeeded")
	b.same(other.Do("commit"), "")
	b.do("insert into effect values ('late')")
	fence, xact, _ := strings.Cut(kept, " ")
	b.is("select pawl_v1.command_close('s', 'k', sha256('p'), "+fence+", '"+xact+"')", "P4020")
	b.do("rollback")
	b.is("select e.who from effect as e", "other")
}

// With a retryable failure instead of a new row, a close does not overwrite the end of a newer
// attempt either.
func TestCommand_CloseDoesNotOverwriteANewerFailure(t *testing.T) {
	t.Parallel()
	b := setup(t, "")
	b.do("begin")
	b.do(keepOpened)
	kept := b.main.Do("select o.fence, o.xact from opened as o")
	exec1(t, b.url, `insert into pawl.command (scope, key, hash, fence, expires_at, status)
  values ('s', 'k', sha256('p'), 1000, now() + interval '1 day', 'failed_retryable')`)
	fence, xact, _ := strings.Cut(kept, " ")
	b.is("select pawl_v1.command_close('s', 'k', sha256('p'), "+fence+", '"+xact+"')", "P4020")
	b.do("rollback")
	b.is(commandRow, "failed_retryable 1 true")
}

// A replay neither writes nor locks (trap T15), and does not wait for a session that has locked the
// row.
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

// One time-to-live for lease and memory would forget the key with the lease (trap T1). Here the
// retention starts at the end of the command, however long that took. A purge deletes only ended
// commands (trap T33), and at most the requested number (trap T24).
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
	// Expired, but replayed until it is purged.
	b.is(claimCommand("p", "{}"), "replay_success")
	b.is("select p.purged from pawl_v1.command_purge(10) as p", "0")
	b.is(`select p.purged from pawl_v1.command_purge(10, '{"older_than_ms": 0}') as p`, "1")
	b.is(claimCommand("other", "{}"), "new_claim")
}

// Fences come from one sequence without a session cache, so they grow in the order of the claims.
func TestCommand_FencesAreDrawnOneByOne(t *testing.T) {
	t.Parallel()
	b := setup(t, "")
	b.is("select s.cache_size from pg_sequences as s where s.sequencename = 'fence_seq'", "1")
	// A fence that was never issued.
	b.is("select pawl_v1.command_fail('s', 'k', 17, sha256('p'), '{}')", "P4004")
}

// Waiters that give up and waiters that get an answer change nothing for the holder (trap T2). If
// the holder's lease has ended, its open transaction still keeps the command (trap T6).
func TestT2_ImpatientClaimsChangeNothing(t *testing.T) {
	t.Parallel()
	b := setup(t, "select pawl_v1.command_claim('s', 'k', sha256('p')); "+ageLeases)
	holder := b.open("holder")
	holder.Do("begin")
	b.same(holder.Do("select h.outcome from pawl.command as c, pawl_v1.command_hold('s', 'k', c.fence) as h"), "held")
	for _, options := range []string{"{}", `{"repeatable": true}`, `{"repeatable": true, "wait_ms": 10}`} {
		b.is(claimCommand("p", options), "processing_active")
	}
	b.is(openCommand("p", "{}"), "processing_active")
	b.same(holder.Do("select s.outcome from pawl.command as c, pawl_v1.command_succeed('s', 'k', c.fence) as s"), "succeeded")
	b.same(holder.Do("commit"), "")
	b.is(commandRow, "succeeded 1 true")
}

// In the one-transaction form, the row is inserted once and never updated. Over an older failure it
// is one HOT update.
func TestCommand_OneTransactionWritesOnce(t *testing.T) {
	t.Parallel()
	b := setup(t, "")
	const written = "select pg_stat_force_next_flush(), pg_stat_clear_snapshot(), s.n_tup_ins, s.n_tup_upd, s.n_tup_hot_upd from pg_stat_user_tables as s where s.relname = 'command'"
	for range 20 {
		b.do(strings.ReplaceAll(openClose, "'k'", "pg_current_xact_id()::text"))
	}
	b.until(b.main, written, "  20 0 0")
	b.do("begin; " + keepOpened)
	b.do("select pawl_v1.command_fail('s', 'k', o.fence, sha256('p'), '{}') from opened as o")
	b.do("commit")
	b.is(openClose, "retryable_failure succeeded")
	b.until(b.main, written, "  21 1 1")
}
