//go:build proof

package schematest_test

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// commandPlay contains the verbs of commands, as play contains those of jobs. Fences come from a
// sequence and are unpredictable, so attempts have names. All verbs use one key, k.
const commandPlay = `
create table play.attempt (name text primary key, fence bigint not null, xact text);
create table play.command_told (n bigint generated always as identity primary key, fence bigint not null, verb text not null);

create function play.note(p_fence bigint, p_verb text) returns void language sql as $$
  insert into play.command_told (fence, verb) values (p_fence, p_verb) $$;

create function play.fence(p_name text) returns bigint language sql as $$
  select a.fence from play.attempt as a where a.name = p_name $$;

create function play.ask(p_name text, p_payload text, p_options jsonb) returns text language plpgsql as $$
declare
  v_said record;
begin
  select c.outcome, c.fence into v_said from pawl_v1.command_claim('s', 'k', sha256(p_payload::bytea), p_options) as c;
  if v_said.outcome in ('new_claim', 'processing_stale', 'retryable_failure') then
    perform play.note(v_said.fence, 'claim');
    insert into play.attempt (name, fence) values (p_name, v_said.fence);
  elsif v_said.outcome = 'unknown' then
    perform play.note(v_said.fence, 'unknown');
  end if;
  return v_said.outcome;
end $$;

-- The two forms of a command. The one-transaction form waits for another session in that form.
create function play.in_one(p_name text, p_payload text default 'one') returns text language plpgsql as $$
declare
  v_said record;
begin
  select o.outcome, o.fence, o.xact into v_said from pawl_v1.command_open('s', 'k', sha256(p_payload::bytea), null, '{"wait_ms": 60000}') as o;
  if v_said.outcome in ('new_claim', 'retryable_failure') then
    perform play.note(v_said.fence, 'claim');
    insert into play.attempt (name, fence, xact) values (p_name, v_said.fence, v_said.xact);
  elsif v_said.outcome = 'unknown' then
    perform play.note(v_said.fence, 'unknown');
  end if;
  return v_said.outcome;
end $$;
create function play.leased(p_name text, p_payload text default 'one') returns text language sql as $$
  select play.ask(p_name, p_payload, '{}') $$;
create function play.repeatable(p_name text) returns text language sql as $$
  select play.ask(p_name, 'one', '{"repeatable": true}') $$;

create function play.work() returns void language sql as $$
  insert into play.effect (what) values ('command k') $$;

-- The effect without the end of the command.
create function play.half(p_name text) returns void language sql as $$
  select play.work() where play.fence(p_name) is not null $$;

-- The effect and the response in one transaction; nothing without the claim.
create function play.succeed(p_name text) returns text language plpgsql as $$
declare
  v_said text;
begin
  if play.fence(p_name) is null then
    return 'nothing';
  end if;
  perform play.work();
  if (select a.xact from play.attempt as a where a.name = p_name) is null then
    select s.outcome into v_said from pawl_v1.command_succeed('s', 'k', play.fence(p_name), 'the answer') as s;
  else
    select c.outcome into v_said from play.attempt as a, pawl_v1.command_close('s', 'k', sha256('one'), a.fence, a.xact, 'the answer') as c
     where a.name = p_name;
  end if;
  perform play.note(play.fence(p_name), v_said);
  return v_said;
end $$;

create function play.flop(p_name text, p_options jsonb default '{}') returns text language plpgsql as $$
declare
  v_said text;
begin
  if play.fence(p_name) is null then
    return 'nothing';
  end if;
  select f.outcome into v_said from pawl_v1.command_fail('s', 'k', play.fence(p_name), sha256('one'), '{"error": "boom"}', p_options) as f;
  perform play.note(play.fence(p_name), v_said);
  return v_said;
end $$;

create function play.command_hold(p_name text) returns text language plpgsql as $$
declare
  v_said text;
begin
  select h.outcome into v_said from pawl_v1.command_hold('s', 'k', play.fence(p_name)) as h;
  perform play.note(play.fence(p_name), v_said);
  return v_said;
end $$;

create function play.command_renew(p_name text) returns text language plpgsql as $$
declare
  v_said text;
begin
  select r.outcome into v_said from pawl_v1.command_renew('s', 'k', play.fence(p_name)) as r;
  perform play.note(play.fence(p_name), v_said);
  return v_said;
end $$;

-- An operator's verdict on the attempts up to p_name, or up to the newest when the verdict began.
create function play.settle(p_verdict text, p_name text default null) returns text language plpgsql as $$
declare
  v_fence bigint := case when p_name is null then (select c.fence from pawl.command as c) else play.fence(p_name) end;
  v_said  text;
begin
  select s.outcome into v_said from pawl_v1.command_settle('s', 'k', coalesce(v_fence, 0), p_verdict, 'ann', 'a reason') as s;
  if v_said = 'settled' then
    perform play.note(v_fence, 'about');
    perform play.note((select c.fence from pawl.command as c), p_verdict);
  end if;
  return v_said;
end $$;

create function play.purge() returns text language plpgsql as $$
declare
  v_purged int;
begin
  select p.purged into v_purged from pawl_v1.command_purge(10, '{"older_than_ms": 0}') as p;
  if v_purged > 0 then
    perform play.note(0, 'purged');
    delete from play.effect as e where e.what = 'command k'; -- of the life that has ended
  end if;
  return v_purged;
end $$;

-- An attempt whose transaction was rolled back. Only its fence is left.
create function play.rolled_back(p_name text) returns void language sql as $$
  insert into play.attempt (name, fence) values (p_name, nextval('pawl.fence_seq')) $$;

-- The lease ends; the retention ends.
create function play.lapse() returns void language sql as $$
  update pawl.command set lease_expires_at = now() - interval '1 hour';
  select play.note(0, 'lapse') $$;
create function play.age() returns void language sql as $$
  update pawl.command set created_at = now() - interval '2 days', expires_at = now() - interval '1 day' $$;

create function play.reset_commands() returns void language sql as $$
  delete from play.command_told; delete from play.attempt; delete from pawl.command; delete from pawl.replay $$;
`

// commandScenes are the concurrent pairs for commands.
var commandScenes = []scene{
	{name: "command: claim, claim", heeded: true, refusal: []string{"25P02"}, sides: [][]string{{"select play.in_one('a')", "select play.succeed('a')"}, {"select play.in_one('b')", "select play.succeed('b')"}}},
	{name: "command: open, open", heeded: true, refusal: []string{"25P02"}, sides: [][]string{{"select play.in_one('a')", "select play.succeed('a')"}, {"select play.in_one('b')", "select play.succeed('b')"}}},
	{name: "command: claim, a claim without an end", heeded: true, refusal: []string{"2D000", "25P02"}, sides: [][]string{{"select play.in_one('a')", "select play.succeed('a')"}, {"select play.in_one('b')", "select play.half('b')"}}},
	{name: "command: claim after a failure, one without an end", given: flopped, heeded: true, refusal: []string{"2D000", "25P02"}, sides: [][]string{{"select play.in_one('a')", "select play.succeed('a')"}, {"select play.in_one('b')", "select play.half('b')"}}},
	{name: "command: claim aborted, claim", heeded: true, refusal: []string{"25P02"}, sides: [][]string{{"select play.in_one('a')", "select play.succeed('a')", rollback}, {"select play.in_one('b')", "select play.succeed('b')"}}},
	{name: "command: claim, claim, claim", heeded: true, refusal: []string{"25P02"}, sides: [][]string{{"select play.in_one('a')", rollback}, {"select play.in_one('b'); select play.succeed('b')"}, {"select play.in_one('c'); select play.succeed('c')"}}},
	{name: "command: claim, other payload", heeded: true, refusal: []string{"25P02"}, sides: [][]string{{"select play.in_one('a')", "select play.succeed('a')"}, {"select play.in_one('b', 'two')", "select play.succeed('b')"}}},
	{name: "command: claim aborted, other payload", heeded: true, refusal: []string{"25P02"}, sides: [][]string{{"select play.in_one('a')", rollback}, {"select play.in_one('b', 'two')", "select play.succeed('b')"}}},
	{name: "command: claim, leased claim", heeded: true, refusal: []string{"25P02"}, sides: [][]string{{"select play.in_one('a')", "select play.succeed('a')"}, {"select play.leased('b')", "select play.succeed('b')"}}},
	{name: "command: leased claim, leased claim", heeded: true, refusal: []string{"25P02"}, sides: [][]string{{"select play.leased('a')"}, {"select play.leased('b')", "select play.succeed('b')"}}},
	{name: "command: claim, failing claim", heeded: true, refusal: []string{"25P02"}, sides: [][]string{{"select play.in_one('a')", finalFlop("a")}, {"select play.in_one('b')", "select play.succeed('b')"}}},
	{name: "command: claim after a failure, twice", heeded: true, refusal: []string{"25P02"}, given: flopped, sides: [][]string{{"select play.in_one('a')", "select play.succeed('a')"}, {"select play.in_one('b')", "select play.succeed('b')"}}},

	{name: "command: succeed, succeed", given: leased, sides: [][]string{{"select play.succeed('one')"}, {"select play.succeed('one')"}}},
	{name: "command: succeed aborted, succeed", given: leased, sides: [][]string{{"select play.succeed('one')", rollback}, {"select play.succeed('one')"}}},
	{name: "command: succeed, fail", given: leased, sides: [][]string{{"select play.succeed('one')"}, {finalFlop("one")}}},
	{name: "command: succeed, claim", heeded: true, refusal: []string{"25P02"}, given: leased, sides: [][]string{{"select play.succeed('one')"}, {"select play.in_one('b')", "select play.succeed('b')"}}},
	{name: "command: fail, claim", heeded: true, refusal: []string{"25P02"}, given: leased, sides: [][]string{{"select play.flop('one')"}, {"select play.in_one('b')", "select play.succeed('b')"}}},

	// A failure is recorded after its transaction was rolled back, while others claim.
	{name: "command: late failure, claim", given: "select play.rolled_back('one');", sides: [][]string{{finalFlop("one")}, {"select play.in_one('b')", "select play.succeed('b')"}}},
	{name: "command: late failure aborted, claim", given: "select play.rolled_back('one');", sides: [][]string{{finalFlop("one"), rollback}, {"select play.in_one('b')", "select play.succeed('b')"}}},
	{name: "command: late failure, leased claim", given: "select play.rolled_back('one');", sides: [][]string{{finalFlop("one")}, {"select play.leased('b')"}}},
	{name: "command: late failure, failing claim", given: "select play.rolled_back('one');", sides: [][]string{{finalFlop("one")}, {"select play.in_one('b')", "select play.flop('b')"}}},
	{name: "command: late failure, late failure", given: "select play.rolled_back('one'), play.rolled_back('two');", sides: [][]string{{finalFlop("one")}, {finalFlop("two")}}},
	{name: "command: late failure over an older one, claim", given: flopped + "select play.rolled_back('two');", sides: [][]string{{finalFlop("two")}, {"select play.in_one('b')", "select play.succeed('b')"}}},
	{name: "command: late failure that is no final one, claim", given: "select play.rolled_back('one');", sides: [][]string{{"select play.flop('one')"}, {"select play.in_one('b')", "select play.succeed('b')"}}},
	{name: "command: late failure over an older one that is no final one, claim", given: flopped + "select play.rolled_back('two');", sides: [][]string{{"select play.flop('two')"}, {"select play.in_one('b')", "select play.succeed('b')"}}},

	{name: "command: takeover, zombie's end", given: lapsed, sides: [][]string{{"select play.repeatable('heir')", "select play.succeed('heir')"}, {"select play.succeed('one')"}}},
	{name: "command: takeover and late end, zombie's end", given: lapsed, sides: [][]string{{"select play.succeed('one')"}, {"select play.repeatable('heir')", "select play.succeed('heir')"}}, apart: true},
	{name: "command: takeover, zombie's failure", given: lapsed, sides: [][]string{{"select play.repeatable('heir')"}, {finalFlop("one")}}},
	{name: "command: takeover, zombie's renewal", given: lapsed, sides: [][]string{{"select play.repeatable('heir')"}, {"select play.command_renew('one')"}}},
	{name: "command: taken over, zombie's renewal", given: lapsed + "select play.repeatable('heir');", sides: [][]string{{"select play.command_renew('heir')"}, {"select play.command_renew('one')"}}},
	{name: "command: taken over, zombie holds", given: lapsed + "select play.repeatable('heir');", sides: [][]string{{"select play.succeed('heir')"}, {"select play.command_hold('one')"}}},
	{name: "command: takeover, hold and end", given: lapsed, sides: [][]string{{"select play.repeatable('heir')"}, {"select play.command_hold('one')", "select play.succeed('one')"}}},
	{name: "command: takeover, takeover", heeded: true, refusal: []string{"25P02"}, given: lapsed, sides: [][]string{{"select play.repeatable('a')", "select play.succeed('a')"}, {"select play.repeatable('b')", "select play.succeed('b')"}}},
	{name: "command: unknown, the end after all", given: lapsed, sides: [][]string{{"select play.leased('b')"}, {"select play.succeed('one')"}}},
	{name: "command: effect without an end, claim", heeded: true, refusal: []string{"25P02"}, given: leased + "select play.work(), play.lapse();", sides: [][]string{{"select play.leased('a')", "select play.succeed('a')"}, {"select play.in_one('b')", "select play.succeed('b')"}}},
	{name: "command: settled, zombie's end", given: lapsed + "select play.leased('b');", sides: [][]string{{"select play.settle('not_executed')"}, {"select play.succeed('one')"}}},
	{name: "command: verdict on an older attempt, verdict", given: lapsed + "select play.leased('b'); select play.settle('not_executed'); select play.leased('two'), play.lapse(); select play.leased('c');",
		sides: [][]string{{"select play.settle('not_executed')"}, {"select play.settle('not_executed', 'one')"}}},
	{name: "command: settled, settled otherwise", heeded: true, refusal: []string{"25P02"}, given: lapsed + "select play.leased('b');", sides: [][]string{{"select play.settle('not_executed')"}, {"select play.settle('not_executed')"}}},

	{name: "command: purge, claim", heeded: true, refusal: []string{"25P02"}, given: forgotten, sides: [][]string{{"select play.purge()"}, {"select play.in_one('b')", "select play.succeed('b')"}}},
	{name: "command: purge, purge", heeded: true, refusal: []string{"25P02"}, given: forgotten, sides: [][]string{{"select play.purge()"}, {"select play.purge()"}}},
	{name: "command: purge, end", given: leased + "select play.age();", sides: [][]string{{"select play.succeed('one')"}, {"select play.purge()"}}},
	// The key's second life must not accept the fence of its first.
	{name: "command: purge and claim, zombie's end", given: lapsed + "select play.repeatable('heir'); select play.succeed('heir'); select play.age();",
		sides: [][]string{{"select play.purge()", "select play.leased('next')"}, {"select play.command_renew('one')"}}},
}

const (
	leased    = "select play.leased('one');"
	lapsed    = leased + "select play.lapse();"
	flopped   = leased + "select play.flop('one');"
	forgotten = leased + "select play.succeed('one'); select play.age();"
)

func finalFlop(name string) string { return `select play.flop('` + name + `', '{"final": true}')` }

// commandMutants are defects of commands that the scenes must find.
var commandMutants = []mutant{
	{name: "succeed without fence", property: "p_fence", scene: "command: takeover and late end, zombie's end", edits: []edit{{"command_succeed", "\n     and c.fence = p_fence;", ";"}}},
	{name: "succeed without state", property: "p_once", scene: "command: succeed, succeed", edits: []edit{{"command_succeed", "\n     and c.status in ('processing', 'unknown')", ""}}},
	{name: "renew a command without fence", property: "p_fence", scene: "command: taken over, zombie's renewal", edits: []edit{{"command_renew", "\n     and c.fence = p_fence\n", "\n"}}},
	{name: "hold a command without fence", property: "p_fence", scene: "command: taken over, zombie holds", edits: []edit{{"command_hold", " and v_seen.fence = p_fence", ""}}},
	{name: "a late failure overwrites", property: "p_fence", scene: "command: late failure, leased claim", edits: []edit{{"command_fail", "c.status in ('processing', 'unknown') and c.fence = p_fence", "c.status in ('processing', 'unknown')"}}},
	{name: "a late failure beats a newer one", property: "p_fence", scene: "command: late failure, failing claim", edits: []edit{
		{"command_fail", "c.status = 'failed_retryable' and c.fence < p_fence)", "c.status = 'failed_retryable')"}}},
	{name: "silence is failure", property: "p_once", scene: "command: effect without an end, claim", edits: []edit{{"command_claim", "when (p_options ->> 'repeatable')::boolean then", "when true then"}}},
	{name: "a finished command is claimed", property: "p_once", scene: "command: claim, leased claim", edits: []edit{{"_command_standing", "'replay_success'::text", "NULL::text"}, {"command_claim", "v_seen.status = 'failed_retryable'", "v_seen.status <> 'processing'"}}},
	{name: "a late failure does not wait for who has the key", property: "p_fence", scene: "command: late failure that is no final one, claim", edits: []edit{{"command_fail", "perform pg_advisory_xact_lock(pawl_v1._command_lock(p_scope, p_key));", ""}}},
	{name: "a failure is opened without its row", property: "p_fence", scene: "command: late failure over an older one that is no final one, claim", edits: []edit{{"_command_reopen", "\n       for update skip locked", ""}}},
	{name: "an open command is not locked", property: "p_answer", scene: "command: open, open", edits: []edit{{"command_open", "v_mine := pg_try_advisory_xact_lock(pawl_v1._command_lock(p_scope, p_key));", "v_mine := true;"}}},
	{name: "an open command did not look", property: "p_answer", scene: "command: open, open", edits: []edit{withoutLook}},
	{name: "a key that came in between is no conflict", property: "p_once", scene: "command: open, open", edits: []edit{withoutLook, {"command_close", "perform pawl_v1._command_refuse(p_scope, p_key, p_fence);", "null;"}}},
	{name: "COMMIT passes by an open command", property: "p_once", scene: "command: claim, a claim without an end", edits: []edit{{"_command_unended", "raise exception", "raise notice"}}},
	{name: "COMMIT passes by a command that is open again", property: "p_once", scene: "command: claim after a failure, one without an end", edits: []edit{{"command_open", "select pawl_v1._command_unended(' || fence || ')';\n    when", "select 1';\n    when"}}},
	{name: "a live lease is no lease", property: "p_excl", scene: "command: leased claim, leased claim", edits: []edit{{"_command_standing", "lease_expires_at > clock_timestamp()", "lease_expires_at > 'infinity'"}, {"command_claim", "when (p_options ->> 'repeatable')::boolean then", "when true then"}}},
	{name: "fences of one life only", property: "p_fence", scene: "command: purge and claim, zombie's end", edits: []edit{
		{"command_claim", "(scope, key, hash, claimed_by, lease_expires_at, expires_at)\n      values (p_scope,", "(fence, scope, key, hash, claimed_by, lease_expires_at, expires_at)\n      values (1, p_scope,"},
		{"_command_take", "nextval('pawl.fence_seq')", "c.fence + 1"}}},
	{name: "purge what is being done", property: "p_held", scene: "command: purge, end", edits: []edit{
		{"command_purge", "in ('succeeded', 'failed_final')\n       order", "in ('succeeded', 'failed_final', 'processing')\n       order"},
		{"command_purge", "and c.status in ('succeeded', 'failed_final');", ";"}}},
	{name: "a verdict names no attempt", property: "p_excl", scene: "command: verdict on an older attempt, verdict", edits: []edit{{"command_settle", "v_before.fence <> p_fence", "false"}}},
	{name: "a verdict leaves the fence", property: "p_fence", scene: "command: settled, zombie's end", edits: []edit{{"command_settle", "fence = nextval('pawl.fence_seq')", "fence = c.fence"}}},
}

var withoutLook = edit{"command_open", "and c.key = p_key;\n  detail := '{}';\n  if not found", "and false;\n  detail := '{}';\n  if not found"}

// judgeCommands reads the ledger of the key and its row, and returns the violated property.
func judgeCommands(ctx context.Context, conn *pgx.Conn) error {
	notes, err := collect(ctx, conn, "select t.fence, t.verb from play.command_told as t order by t.n", func(row pgx.CollectableRow) (n note, err error) {
		return n, row.Scan(&n.fence, &n.verb)
	})
	if err != nil {
		return err
	}
	var l commandLife
	for _, n := range notes {
		if property := l.next(n); property != "" {
			return violation{property, fmt.Sprintf("%s with fence %d was accepted; %v", n.verb, n.fence, notes)}
		}
	}
	var status string
	var effects int
	err = conn.QueryRow(ctx, `select coalesce((select c.status from pawl.command as c), ''),
  (select count(*) from play.effect as e where e.what = 'command k')`).Scan(&status, &effects)
	if err != nil {
		return err
	}
	if want := l.status(); status != want {
		return violation{"p_term", fmt.Sprintf("the row is %q, the ledger says %q: %v", status, want, notes)}
	}
	if status == "succeeded" && effects != 1 {
		return violation{"p_done", fmt.Sprintf("succeeded with %d effects", effects)}
	}
	return nil
}

// A commandLife is the state of the key after some notes. The newest fence survives the row's
// deletion.
type commandLife struct {
	newest              int64
	held, lapsed, doubt bool
	ended               string
}

func (l *commandLife) next(n note) (property string) {
	switch n.verb {
	case "lapse":
		l.lapsed = true
		return ""
	case "purged":
		if l.held {
			return "p_held"
		}
		if l.ended != "succeeded" && l.ended != "failed_final" {
			return "p_loss"
		}
		*l = commandLife{newest: l.newest}
		return ""
	case "unknown":
		if l.held && !l.lapsed {
			return "p_excl"
		}
		l.doubt = true
		return ""
	case "claim":
		switch {
		case slices.Contains([]string{"succeeded", "failed_final"}, l.ended):
			return "p_term"
		case l.doubt || l.held && !l.lapsed:
			return "p_excl"
		case n.fence <= l.newest:
			return "p_fence"
		}
		*l = commandLife{newest: n.fence, held: true}
		return ""
	case "about": // a verdict on an older attempt does not affect the newest
		if n.fence != l.newest {
			return "p_excl"
		}
		return ""
	case "not_executed", "executed": // a new generation
		if n.fence <= l.newest {
			return "p_fence"
		}
		if !l.doubt {
			return "p_held"
		}
		*l = commandLife{newest: n.fence, ended: map[string]string{"executed": "succeeded", "not_executed": "failed_retryable"}[n.verb]}
		return ""
	}
	return l.word(n)
}

// word handles a note of an attempt itself: a renewal, a hold, an end.
func (l *commandLife) word(n note) (property string) {
	// From a transaction that was rolled back.
	late := strings.HasPrefix(n.verb, "failed_") && n.fence > l.newest
	switch {
	case slices.Contains([]string{"succeeded", "failed_final"}, l.ended):
		return "p_term"
	case late && l.held:
		return "p_excl"
	case late:
		l.newest = n.fence
	case n.fence != l.newest:
		return "p_fence"
	case !l.held:
		return "p_held"
	}
	switch n.verb {
	case "renewed":
		l.lapsed, l.doubt = false, false
	case "held":
	default:
		*l = commandLife{newest: l.newest, ended: n.verb}
	}
	return ""
}

func (l *commandLife) status() string {
	switch {
	case l.ended != "":
		return l.ended
	case l.doubt:
		return "unknown"
	case l.held:
		return "processing"
	}
	return ""
}
