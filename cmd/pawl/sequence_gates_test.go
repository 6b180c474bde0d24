package main

import (
	"strings"
	"testing"

	"github.com/pawl-go/pawl/pawltest"
)

// withGates has gate "account 7" of consumer orders, which is at 41 and holds numbers 44 and 45,
// and gate "account 8", which holds nothing.
func withGates(t *testing.T) string {
	t.Helper()
	db := pawltest.URL(t)
	exec1(t, db, `
select pawl_v1.sequence_gate_reset('orders', 'account 7', 41, 'setup', 'r'), pawl_v1.sequence_gate_pass('orders', 'account 8', 3, '{"mode": "latest"}');
insert into pawl.sequence_gate (consumer, resource) values ('mail', 'new');
do $$
begin
  for n in 44..45 loop
    perform pawl_v1.inbox_claim('orders', 'm' || n, sha256(''));
    perform pawl_v1.sequence_gate_pass('orders', 'account 7', n, '{"mode": "strict"}');
    perform pawl_v1.sequence_gate_hold('orders', 'account 7', n, l.job_id) from pawl_v1.inbox_store('orders', 'm' || n, 'q', 'k', '', '{"retry_in_ms": 300000}') as l;
  end loop;
end $$;
update pawl.sequence_gate_held set held_at = clock_timestamp() - interval '3 hours 5 minutes'`)
	return db
}

// A gate waits for a missing number and is released, in text.
func TestGates_Table(t *testing.T) {
	t.Parallel()
	db := withGates(t)
	const golden = `CONSUMER  RESOURCE   LAST  HELD  NEXT  SINCE
mail      new        -     0     -     -
orders    account 7  41    2     44    3h
orders    account 8  3     0     -     -
`
	if r := mustPawl(t, db, "sequence-gates", "list"); r.stdout != golden || r.stderr != "" {
		t.Errorf("%s%s", r.stdout, r.stderr)
	}
	if r := mustPawl(t, db, "sequence-gates", "list", "--held", "--consumer", "orders", "--limit", "1"); strings.Count(r.stdout, "\n") != 2 ||
		!strings.Contains(r.stdout, "account 7") || r.stderr != "" {
		t.Errorf("%s%s", r.stdout, r.stderr)
	}
	if r := mustPawl(t, db, "sequence-gates", "list", "--consumer", "orders", "--after", "orders/account%208"); r.stdout != "" || r.stderr != "no gates\n" {
		t.Errorf("%+v", r)
	}
	if r := mustPawl(t, db, "sequence-gates", "release", "orders", "account 7", "--reason", "lost", "--yes"); r.stdout != "gate account 7 released: it stands at 43 (was 41)\n" {
		t.Errorf("%+v", r)
	}
	if n := one[int](t, db, "select count(*) from pawl.job where available_at <= clock_timestamp()"); n != 1 {
		t.Errorf("%d jobs are due", n)
	}
	wantFailure(t, pawl(t, db, "sequence-gates", "release", "orders", "account 8", "--reason", "r", "--yes"), 1, "nothing is held at gate account 8 of consumer orders", "--held")
	if r := mustPawl(t, db, "sequence-gates", "reset", "mail", "new", "0", "--from", "none", "--reason", "r", "--yes"); r.stdout != "gate new reset: it stands at 0 (was -)\n" {
		t.Errorf("%+v", r)
	}
	wantFailure(t, pawl(t, db, "sequence-gates", "reset", "mail", "new", "7", "--from", "none", "--reason", "r", "--yes"), 1, "gate new of consumer mail has moved since you looked")
	if r := mustPawl(t, db, "sequence-gates", "reset", "--reason", "r", "--yes", "--", "mail", "new", "-1"); r.stdout != "gate new reset: it stands at -1 (was 0)\n" {
		t.Errorf("%+v", r)
	}
	if got := one[string](t, db, "select string_agg(a.verb || ' ' || a.target || ' ' || a.reason, ', ' order by a.id) from pawl.audit as a where a.actor <> 'setup'"); got !=
		"sequence_gate_release gate orders account 7 lost, sequence_gate_reset gate mail new r, sequence_gate_reset gate mail new r" {
		t.Error(got)
	}
}

// Scripts read these documents.
func TestGates_JSON(t *testing.T) {
	t.Parallel()
	db := withGates(t)
	type page struct {
		Gates []struct {
			Consumer, Resource string
			Last               *int64
			Held               int
			NextHeld           *int64 `json:"next_held"`
			Since              *string
			ReadAt             string `json:"read_at"`
		}
		NextAfter string `json:"next_after"`
	}
	p := decode[page](t, mustPawl(t, db, "sequence-gates", "list", "--json", "--limit", "2").stdout)
	if len(p.Gates) != 2 || p.NextAfter != "orders/account%207" {
		t.Errorf("%+v", p)
	}
	p = decode[page](t, mustPawl(t, db, "sequence-gates", "list", "--json", "--limit", "3").stdout)
	if len(p.Gates) != 3 || p.NextAfter != "" || p.Gates[0].Last != nil || p.Gates[0].NextHeld != nil || p.Gates[0].Since != nil ||
		p.Gates[1].Held != 2 || *p.Gates[1].NextHeld != 44 || !strings.HasSuffix(*p.Gates[1].Since, "Z") || *p.Gates[2].Last != 3 {
		t.Errorf("%+v", p)
	}
	for line, want := range map[string]string{
		"sequence-gates list --json --consumer none":                      `{"gates":[]}`,
		"sequence-gates release orders account-7 --json --reason r --yes": `{"outcome":"idle","hint":"nothing is held: list the gates that hold something"}`,
		"sequence-gates reset new r 4 --json --reason r --yes":            `{"outcome":"reset","now":"4"}`,
	} {
		if r := pawl(t, db, strings.Fields(line)...); r.stdout != want+"\n" || (r.code == 1) != strings.Contains(want, "idle") {
			t.Errorf("pawl %s: %+v", line, r)
		}
	}
}

func TestGates_NeedReasonAndYes(t *testing.T) {
	t.Parallel()
	db := withGates(t)
	for line, want := range map[string][]string{
		"sequence-gates reset orders a 1 --yes":          {"the reason is missing", "--reason"},
		"sequence-gates reset orders a 1 --reason r":     {"this would reset sequence gate a of consumer orders", "are dropped", "add --yes"},
		"sequence-gates release orders a --reason r":     {"this would release sequence gate a of consumer orders", "add --yes"},
		"sequence-gates reset orders a one --reason r":   {`LAST is a number, not "one"`},
		"sequence-gates reset orders a --reason r --yes": {"it takes 3 arguments, not 2", "CONSUMER RESOURCE LAST"},
		"sequence-gates list --limit 0":                  {"--limit must lie between 1 and 1000"},
		"sequence-gates list --after a":                  {"is not a cursor"},
		"sequence-gates list orders":                     {"unexpected argument", "--help"},
		"sequence-gates open orders":                     {`unknown command "open"`},
		"inbox forget orders m44 --yes":                  {"the reason is missing", "--reason"},
		"inbox forget orders m44 --reason r":             {"this would forget delivery m44 of consumer orders", "takes effect again", "add --yes"},
		"inbox forget orders --reason r --yes":           {"it takes 2 arguments, not 1", "CONSUMER ID"},
		"inbox show orders":                              {"it takes 2 arguments, not 1", "CONSUMER ID"},
		"inbox delete orders m44":                        {`unknown command "delete"`},
	} {
		wantFailure(t, pawl(t, db, strings.Fields(line)...), 2, want...)
	}
	if n := one[int](t, db, "select count(*) from pawl.audit where actor <> 'setup'"); n != 0 {
		t.Errorf("%d records", n)
	}
}

// A gate locked by an open transaction is reported as locked, with the next step.
func TestGates_Locked(t *testing.T) {
	t.Parallel()
	db := withGates(t)
	handler := connect(t, db)
	if _, err := handler.Exec(t.Context(), `begin; select pawl_v1.sequence_gate_pass('orders', 'account 7', 42, '{"mode": "strict"}');
update pawl.inbox set result_ref = 'x' where key = 'm44'`); err != nil {
		t.Fatal(err)
	}
	wantFailure(t, pawl(t, db, "sequence-gates", "release", "orders", "account 7", "--reason", "r", "--yes"), 1, "locked by an open transaction", "ask again")
	wantFailure(t, pawl(t, db, "inbox", "forget", "orders", "m44", "--reason", "r", "--yes"), 1, "locked by an open transaction", "ask again")
}

// Names from senders cannot act on a terminal.
func TestGates_TerminalAttack(t *testing.T) {
	t.Parallel()
	db := withGates(t)
	exec1(t, db, `update pawl.sequence_gate set resource = U&'\001b[2J\202e\000afake line' where resource = 'new';
select pawl_v1.inbox_claim('orders', U&'\001b[2J\202e', sha256(''), jsonb_build_object('result_ref', U&'\001b[2J\000afake line'))`)
	for _, args := range [][]string{{"sequence-gates", "list"}, {"sequence-gates", "list", "--json"}, {"inbox", "show", "orders", "\x1b[2J\u202e"}, {"inbox", "show", "orders", "\x1b[2J\u202e", "--json"}} {
		r := mustPawl(t, db, args...)
		if strings.ContainsAny(r.stdout, "\x1b\u202e") || strings.Contains(r.stdout, "\nfake line") {
			t.Errorf("pawl %q: %q", args, r.stdout)
		}
	}
	wantFailure(t, pawl(t, db, "sequence-gates", "release", "orders", "\x1b[2J", "--reason", "r", "--yes"), 1, `gate \x1b[2J of consumer orders`)
}
