package main

import (
	"strings"
	"testing"

	"github.com/pawl-go/pawl/pawltest"
)

// withLanes has three lanes. Lane 1, "account-17" of queue orders, is blocked by dead letter 1 with
// two jobs behind it. Lane 2, "account-18", has a due job. Lane 3, of queue other, has no job.
func withLanes(t *testing.T) string {
	t.Helper()
	db := pawltest.URL(t)
	exec1(t, db, `
select pawl_v1.job_enqueue('orders', 'charge', '', '{"lane": "account-17"}') from generate_series(1, 3);
select pawl_v1.job_claim('orders', null), pawl_v1.job_fail(1, 1, '{"error": "stock is away"}', '{"final": true}');
select pawl_v1.job_enqueue('orders', 'charge', '', '{"lane": "account-18", "lane_policy": "park"}');
insert into pawl.lane (queue, name) values ('other', 'idle');
update pawl.job set created_at = clock_timestamp() - interval '3 hours 5 minutes'`)
	return db
}

// A blocked lane is listed and unblocked, in text.
func TestLanes_Table(t *testing.T) {
	t.Parallel()
	db := withLanes(t)
	const golden = `ID  QUEUE   LANE        POLICY  HEAD  STATUS       WAITING  OLDEST
1   orders  account-17  block   1     dead_letter  2        3h
2   orders  account-18  park    4     pending      0        -
3   other   idle        block   -     -            0        -
`
	if r := mustPawl(t, db, "lanes", "list"); r.stdout != golden || r.stderr != "" {
		t.Errorf("%s%s", r.stdout, r.stderr)
	}
	if r := mustPawl(t, db, "lanes", "list", "--blocked", "--queue", "orders", "--limit", "1"); strings.Count(r.stdout, "\n") != 2 ||
		!strings.Contains(r.stdout, "account-17") || r.stderr != "" {
		t.Errorf("%s%s", r.stdout, r.stderr)
	}
	wantFailure(t, pawl(t, db, "lanes", "unblock", "orders", "account-17", "--job", "2", "--reason", "r", "--yes"), 1,
		"job 1 has the turn and is dead_letter", "another job blocks")
	if r := mustPawl(t, db, "lanes", "unblock", "orders", "account-17", "--job", "1", "--reason", "booked by hand", "--yes"); r.stdout != "lane account-17 unblocked: job 1 has given up its turn\n" {
		t.Errorf("%+v", r)
	}
	wantFailure(t, pawl(t, db, "lanes", "unblock", "orders", "account-17", "--reason", "r", "--yes"), 1, "job 2 has the turn and is pending", "cancel it")
	wantFailure(t, pawl(t, db, "lanes", "unblock", "other", "idle", "--reason", "r", "--yes"), 1, "nothing blocks lane idle", "--blocked")
	if r := mustPawl(t, db, "lanes", "policy", "orders", "account-17", "skip", "--reason", "r"); r.stdout != "lane account-17 changed (was block)\n" {
		t.Errorf("%+v", r)
	}
	if r := mustPawl(t, db, "lanes", "list", "--blocked"); r.stdout != "" || r.stderr != "no lanes\n" {
		t.Errorf("%+v", r)
	}
	if got := one[string](t, db, "select string_agg(a.verb || ' ' || a.reason, ', ' order by a.id) from pawl.audit as a"); got != "lane_unblock booked by hand, lane_policy r" {
		t.Error(got)
	}
}

// Scripts read these documents.
func TestLanes_JSON(t *testing.T) {
	t.Parallel()
	db := withLanes(t)
	type page struct {
		Lanes []struct {
			ID                  int64
			Queue, Name, Policy string
			Head                *int64
			HeadStatus          *string `json:"head_status"`
			Waiting             int
			Oldest              *string
			ReadAt              string `json:"read_at"`
		}
		NextAfter *string `json:"next_after"`
	}
	p := decode[page](t, mustPawl(t, db, "lanes", "list", "--json", "--limit", "2").stdout)
	if p.NextAfter == nil || *p.NextAfter != "2" || len(p.Lanes) != 2 {
		t.Errorf("%+v", p)
	}
	p = decode[page](t, mustPawl(t, db, "lanes", "list", "--json", "--limit", "3").stdout)
	if len(p.Lanes) != 3 || p.NextAfter != nil || *p.Lanes[0].Head != 1 || *p.Lanes[0].HeadStatus != "dead_letter" || p.Lanes[0].Waiting != 2 ||
		!strings.HasSuffix(*p.Lanes[0].Oldest, "Z") || p.Lanes[1].Oldest != nil || p.Lanes[2].Head != nil || p.Lanes[2].HeadStatus != nil {
		t.Errorf("%+v", p)
	}
	if r := mustPawl(t, db, "lanes", "list", "--json", "--queue", "none"); r.stdout != `{"lanes":[]}`+"\n" || r.stderr != "" {
		t.Errorf("none: %+v", r)
	}
	if r := mustPawl(t, db, "jobs", "list", "--json"); strings.Count(r.stdout, `"lane":"account-17"`) != 3 {
		t.Errorf("%+v", r)
	}
	const unblocked = `{"outcome":"unblocked","job_id":1}` + "\n"
	if r := mustPawl(t, db, "lanes", "unblock", "orders", "account-17", "--reason", "r", "--yes", "--json"); r.stdout != unblocked {
		t.Errorf("%+v", r)
	}
	r := pawl(t, db, "lanes", "unblock", "orders", "account-17", "--reason", "r", "--yes", "--json")
	if r.code != 1 || !strings.HasPrefix(r.stdout, `{"outcome":"refused","job_id":2,"was":"pending","hint":"`) || strings.Count(r.stderr, "\n") != 1 {
		t.Errorf("%+v", r)
	}
}

func TestLanes_NeedReasonAndYes(t *testing.T) {
	t.Parallel()
	db := withLanes(t)
	for line, want := range map[string][]string{
		"lanes unblock orders account-17 --yes":                      {"the reason is missing", "--reason"},
		"lanes unblock orders account-17 --reason r":                 {"this would unblock lane account-17 of queue orders", "add --yes"},
		"lanes unblock orders --reason r --yes":                      {"it takes 2 arguments, not 1", "QUEUE LANE"},
		"lanes policy orders account-17 --reason r":                  {"it takes 3 arguments, not 2"},
		"lanes policy orders account-17 drop --reason r":             {"block, park or skip, not drop"},
		"lanes unblock orders account-17 --job -1 --reason r --yes":  {"--job must be a whole number above zero"},
		"lanes unblock orders account-17 --job one --reason r --yes": {"--job"},
		"lanes list --limit 0":                                       {"--limit must lie between 1 and 1000"},
		"lanes list --limit 1001":                                    {"must lie between 1 and 1000", "it is 1001"},
		"lanes list orders":                                          {"unexpected argument", "--help"},
		"lanes retry 1":                                              {`unknown command "retry"`},
	} {
		wantFailure(t, pawl(t, db, strings.Fields(line)...), 2, want...)
	}
	wantFailure(t, pawl(t, db, "lanes", "unblock", "orders", "account-99", "--reason", "r", "--yes"), 1, "there is no lane account-99 in queue orders")
	if n := one[int](t, db, "select count(*) from pawl.audit"); n != 0 {
		t.Errorf("%d records", n)
	}
}

// A lane that a writer has locked is reported as locked, with the next step.
func TestLanesUnblock_Locked(t *testing.T) {
	t.Parallel()
	db := withLanes(t)
	writer := connect(t, db)
	if _, err := writer.Exec(t.Context(), `begin; select pawl_v1.job_enqueue('orders', 'charge', '', '{"lane": "account-17"}')`); err != nil {
		t.Fatal(err)
	}
	wantFailure(t, pawl(t, db, "lanes", "unblock", "orders", "account-17", "--reason", "r", "--yes"), 1, "locked by an open transaction", "ask again")
}

// Names of lanes from producers cannot act on a terminal.
func TestLanes_TerminalAttack(t *testing.T) {
	t.Parallel()
	db := withLanes(t)
	exec1(t, db, `update pawl.lane set name = U&'\001b[2J\202e\000afake line' where id = 1`)
	for _, line := range []string{"lanes list", "lanes list --json"} {
		r := mustPawl(t, db, strings.Fields(line)...)
		if strings.ContainsAny(r.stdout, "\x1b\u202e") || strings.Contains(r.stdout, "\nfake line") {
			t.Errorf("pawl %s: %q", line, r.stdout)
		}
	}
	r := pawl(t, db, "lanes", "unblock", "orders", "\x1b[2J\u202e", "--reason", "r", "--yes")
	wantFailure(t, r, 1, `there is no lane \x1b[2J\u202e`)
}
