package main

import (
	"encoding/base64"
	"regexp"
	"strings"
	"testing"

	"github.com/pawl-go/pawl/pawltest"
)

// withArchive has job 1 of queue orders in the archive, in lane "account-17", and job 2, which
// finished without archive.
func withArchive(t *testing.T) string {
	t.Helper()
	db := pawltest.URL(t)
	exec1(t, db, `
select pawl_v1.queue_set('orders', '{"archive": true}', 'ann', 'r'), pawl_v1.queue_set('mail', '{"archive": true}', 'ann', 'r');
select pawl_v1.queue_set('mail', '{"archive": false}', 'ann', 'r');
select pawl_v1.job_enqueue('orders', 'charge', '{"cents": 1}', '{"lane": "account-17", "headers": {"tenant": "acme"}}'), pawl_v1.job_enqueue('mail', 'welcome', '');
select pawl_v1.job_claim('orders', null), pawl_v1.job_claim('mail', null);
select pawl_v1.job_finish(1, 1), pawl_v1.job_finish(2, 1)`)
	return db
}

func TestQueues_Table(t *testing.T) {
	t.Parallel()
	db := withArchive(t)
	const golden = `QUEUE   MODE     ARCHIVE  DUE  LATER  WAITING  PROCESSING  BEGUN  DEAD
mail    running  off      0    0      0        0           0      0
orders  running  on       0    0      0        0           0      0
`
	if r := mustPawl(t, db, "queues", "list"); r.stdout != golden || r.stderr != "" {
		t.Errorf("%s%s", r.stdout, r.stderr)
	}
	if r := mustPawl(t, db, "queues", "list", "--limit", "1"); strings.Count(r.stdout, "\n") != 2 || r.stderr != "there is more: add --after mail\n" {
		t.Errorf("%+v", r)
	}
	if r := mustPawl(t, db, "queues", "list", "--after", "orders"); r.stdout != "" || r.stderr != "no queue has jobs or settings\n" {
		t.Errorf("%+v", r)
	}
	for _, step := range [][2]string{{"true", "queue mail changed (archive was off)\n"}, {"true", "queue mail unchanged (archive was on)\n"}, {"false", "queue mail changed (archive was on)\n"}} {
		if r := mustPawl(t, db, "queues", "set", "mail", "--archive="+step[0], "--reason", "why", "--actor", "bob"); r.stdout != step[1] || r.stderr != "" {
			t.Errorf("%+v, want %s", r, step[1])
		}
	}
	if n := one[int](t, db, "select count(*) from pawl.audit as a where a.verb = 'queue_set' and a.actor = 'bob' and a.reason = 'why'"); n != 2 {
		t.Errorf("%d records", n)
	}
}

// A queue is paused, drained and resumed, each with an audit record. The list shows the running
// jobs.
func TestQueues_Modes(t *testing.T) {
	t.Parallel()
	db := withArchive(t)
	exec1(t, db, "select pawl_v1.job_enqueue('mail', 'welcome', '') from generate_series(1, 3); select pawl_v1.job_claim('mail', null, 2); select pawl_v1.job_fail(3, 1, '{}')")
	for _, step := range [][2]string{
		{"pause", "queue mail paused (was running)\n"}, {"pause", "queue mail paused already\n"},
		{"drain", "queue mail draining (was paused)\n"}, {"resume", "queue mail running (was draining)\n"},
		{"drain", "queue mail draining (was running)\n"},
	} {
		if r := mustPawl(t, db, "queues", step[0], "mail", "--reason", "why", "--actor", "bob"); r.stdout != step[1] || r.stderr != "" {
			t.Errorf("%+v, want %s", r, step[1])
		}
	}
	const golden = `QUEUE   MODE      ARCHIVE  DUE  LATER  WAITING  PROCESSING  BEGUN  DEAD
mail    draining  off      DUE  LATER  0        1           1      0
orders  running   on       0    0      0        0           0      0
`
	// its retry may be due by now
	later := regexp.MustCompile(`(?m)^(mail +draining +off +)\d    \d    `)
	if r := mustPawl(t, db, "queues", "list"); later.ReplaceAllString(r.stdout, "${1}DUE  LATER") != golden {
		t.Errorf("%s%s", r.stdout, r.stderr)
	}
	if n := one[int](t, db, "select count(*) from pawl.audit as a where a.verb = 'queue_set' and a.actor = 'bob' and a.before ->> 'mode' <> a.after ->> 'mode'"); n != 4 {
		t.Errorf("%d records", n)
	}
	holder := connect(t, db)
	if _, err := holder.Exec(t.Context(), "begin; select from pawl.queue where name = 'mail' for update"); err != nil {
		t.Fatal(err)
	}
	wantFailure(t, pawl(t, db, "queues", "resume", "mail", "--reason", "r"), 1, "being set in another open transaction", "ask again")
}

// Scripts read these documents.
func TestQueues_JSON(t *testing.T) {
	t.Parallel()
	db := withArchive(t)
	type page struct {
		Queues []struct {
			ID                                                               int64
			Name, Mode                                                       string
			Archive                                                          bool
			Due, Later, Waiting, Processing, Begun, Dead, Unknown, Cancelled int
			LanesBlocked                                                     int    `json:"lanes_blocked"`
			DueSince                                                         string `json:"due_since"`
			ReadAt                                                           string `json:"read_at"`
		}
		NextAfter string `json:"next_after"`
	}
	p := decode[page](t, mustPawl(t, db, "queues", "list", "--json", "--limit", "1").stdout)
	if len(p.Queues) != 1 || p.Queues[0].ID != 2 || p.Queues[0].Name != "mail" || p.Queues[0].Mode != "running" || p.Queues[0].Archive || p.NextAfter != "mail" {
		t.Errorf("%+v", p)
	}
	for _, c := range [][2]string{
		{"queues list --json --after z", `{"queues":[]}`},
		{"queues set o --archive --json --reason r", `{"outcome":"changed","was":"off","now":"on"}`},
		{"queues pause o --json --reason r", `{"outcome":"changed","was":"running","now":"paused"}`},
		{"queues pause o --json --reason r", `{"outcome":"unchanged","was":"paused","now":"paused","hint":"it was paused already"}`},
		{"queues resume o --dry-run --json", `{"outcome":"changed","dry_run":true,"was":"paused","now":"running"}`},
		{"queues drain o --json --reason r", `{"outcome":"changed","was":"paused","now":"draining"}`},
		{"queues resume o --json --reason r", `{"outcome":"changed","was":"draining","now":"running"}`},
	} {
		line, want := c[0], c[1]
		if r := mustPawl(t, db, strings.Fields(line)...); r.stdout != want+"\n" || r.stderr != "" {
			t.Errorf("pawl %s: %+v, want %s", line, r, want)
		}
	}
}

// A finished job is shown from the archive. Without an archive it is unknown.
func TestJobsShow_Archived(t *testing.T) {
	t.Parallel()
	db := withArchive(t)
	const golden = `job 1, from the archive
  queue      orders
  kind       charge
  lane       account-17
  finished   TIME (0s ago)
  attempts   1, 0 crashes
  priority   2
  fence      1
  created    TIME (0s ago)
  headers    {"tenant":"acme"}
  payload    12 octets, SHA-256 SUM
    {"cents": 1}
`
	r := mustPawl(t, db, "jobs", "show", "1")
	got := regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ \(\d+[sm] ago\)`).ReplaceAllString(r.stdout, "TIME (0s ago)")
	if got = regexp.MustCompile(`[0-9a-f]{64}`).ReplaceAllString(got, "SUM"); got != golden || r.stderr != "" {
		t.Errorf("%s%s", got, r.stderr)
	}
	type document struct {
		Jobs, Absent []any
		Archived     []map[string]any
	}
	d := decode[document](t, mustPawl(t, db, "jobs", "show", "1", "--json").stdout)
	if len(d.Archived) != 1 || d.Archived[0]["lane"] != "account-17" || d.Archived[0]["payload"] != base64.StdEncoding.EncodeToString([]byte(`{"cents": 1}`)) || d.Jobs == nil || d.Absent == nil {
		t.Errorf("%+v", d)
	}
	wantFailure(t, pawl(t, db, "jobs", "show", "2"), 1, "there is no job 2", "it finished, or never existed")
	wantFailure(t, pawl(t, db, "dlq", "show", "1"), 1, "job 1 has finished", "pawl jobs show 1")
	if r := pawl(t, db, "jobs", "show", "1", "2"); r.code != 1 || !strings.HasPrefix(r.stdout, "job 1, from the archive\n") || !strings.Contains(r.stderr, "not done for 1 of 2") {
		t.Errorf("%+v", r)
	}
}

func TestQueues_BadInput(t *testing.T) {
	t.Parallel()
	db := withArchive(t)
	for line, want := range map[string][]string{
		"queues set orders --archive=true":             {"the reason is missing", "--reason"},
		"queues set orders --reason r":                 {"the setting is missing", "--archive=true"},
		"queues set --archive=true --reason r":         {"it takes 1 argument, not 0", "QUEUE"},
		"queues set a b --archive=true --reason r":     {"it takes 1 argument, not 2"},
		"queues set orders --archive=maybe --reason r": {"--archive"},
		"queues list --limit 0":                        {"--limit must lie between 1 and 1000"},
		"queues list --limit 1001":                     {"must lie between 1 and 1000", "it is 1001"},
		"queues list orders":                           {"unexpected argument", "--help"},
		"queues drop orders":                           {`unknown command "drop"`},
		"queues pause orders":                          {"the reason is missing", "--reason"},
		"queues drain --reason r":                      {"it takes 1 argument, not 0", "QUEUE"},
		"queues resume a b --reason r":                 {"it takes 1 argument, not 2"},
	} {
		wantFailure(t, pawl(t, db, strings.Fields(line)...), 2, want...)
	}
	wantFailure(t, pawl(t, db, "queues", "set", strings.Repeat("q", 256), "--archive=true", "--reason", "r"), 2, "1 to 255 octets", "256")
}

// Text from producers cannot act on a terminal, archived or not.
func TestQueues_TerminalAttack(t *testing.T) {
	t.Parallel()
	db := withArchive(t)
	exec1(t, db, `update pawl.queue set name = U&'\001b[2J\202e\000afake line' where id = 1`)
	exec1(t, db, `do $$ begin execute format('update pawl.archive_%s set lane = U&''\001b[2J\202e\000afake line'', kind = U&''\001b[2J\202e\000afake line''', pawl_v1._day(now()) % 8); end $$`)
	for _, line := range []string{"queues list", "queues list --json", "queues list --limit 1 --after mail", "jobs show 1"} {
		r := mustPawl(t, db, strings.Fields(line)...)
		if strings.ContainsAny(r.stdout+r.stderr, "\x1b\u202e") || strings.Contains(r.stdout, "\nfake line") {
			t.Errorf("pawl %s: %q", line, r.stdout)
		}
	}
}

// A refusal of the database is one line with the reason, without the server's context. wantFailure
// checks that for all failures.
func TestRefusal_ShowsNoFrameOfTheServer(t *testing.T) {
	t.Parallel()
	db := withArchive(t)
	wantFailure(t, pawl(t, db, "queues", "set", "mail", "--archive=true", "--actor", "bob", "--reason", strings.Repeat("r", 4001)), 2, "P4004")
}
