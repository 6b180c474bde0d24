package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/pawl-go/pawl/pawltest"
)

// withSchedules has four schedules: one that has ticked and ticks again in an hour, one that no
// keeper has seen, one that is late, and one that is paused.
func withSchedules(t *testing.T) string {
	t.Helper()
	db := pawltest.URL(t)
	exec1(t, db, `
select pawl_v1.schedule_put('clean', 'house', 'clean', '', '{"every_ms": 3600000, "first_at": "2026-01-01 00:00Z", "lane": "clean"}');
select pawl_v1.schedule_tick(s.name, s.fence) from pawl.schedule as s;
update pawl.schedule set next_at = now() + interval '5 hours 30 minutes', last_at = now() - interval '5 hours 30 minutes';
select pawl_v1.schedule_put('nightly', 'reports', 'nightly', '', '{"cron": "30 2 * * *", "time_zone": "Europe/Berlin", "missed": "all"}');
select pawl_v1.schedule_put('stale', 'house', 'sweep', '', '{"every_ms": 90000}');
update pawl.schedule set next_at = now() - interval '5 hours 30 minutes' where name = 'stale';
select pawl_v1.schedule_put('still', 'house', 'sweep', '', '{"every_ms": 1000}');
select pawl_v1.schedule_pause('still', 'setup', 'r')`)
	return db
}

func TestSchedules_Table(t *testing.T) {
	t.Parallel()
	db := withSchedules(t)
	const golden = `SCHEDULE  PLAN                      NEXT    LAST     MISSED  QUEUE    KIND
clean     every 1h              in 5h  5h ago  last    house    clean
nightly   30 2 * * * Europe/Berlin  -       -        all     reports  nightly
stale     every 1m30s               5h late  -        last    house    sweep
still     every 1s                  paused  -        last    house    sweep
`
	squeeze := func(text string) string { return regexp.MustCompile(`[ ]{2,}`).ReplaceAllString(text, "  ") }
	if r := mustPawl(t, db, "schedules", "list"); squeeze(r.stdout) != squeeze(golden) || r.stderr != "" {
		t.Errorf("%s%s", r.stdout, r.stderr)
	}
	if r := mustPawl(t, db, "schedules", "list", "--limit", "2"); strings.Count(r.stdout, "\n") != 3 || r.stderr != "there is more: add --after nightly\n" {
		t.Errorf("%+v", r)
	}
	if r := mustPawl(t, db, "schedules", "list", "--after", "z"); r.stdout != "" || r.stderr != "no schedules\n" {
		t.Errorf("%+v", r)
	}
}

// The verbs work, and write audit records.
func TestSchedules_Verbs(t *testing.T) {
	t.Parallel()
	db := withSchedules(t)
	for _, step := range [][2]string{
		{"pause clean", "schedule clean paused\n"}, {"pause clean", "schedule clean is paused already\n"},
		{"run-now clean --yes", "schedule clean: job 2 enqueued\n"},
		{"resume clean", "schedule clean resumed\n"}, {"resume clean", "schedule clean is not paused\n"},
		{"delete clean --yes", "schedule clean deleted\n"},
	} {
		args := append(append([]string{"schedules"}, strings.Fields(step[0])...), "--reason", "why", "--actor", "bob")
		if r := mustPawl(t, db, args...); r.stdout != step[1] || r.stderr != "" {
			t.Errorf("%+v, want %s", r, step[1])
		}
	}
	if n := one[int](t, db, "select count(*) from pawl.audit as a where a.target = 'schedule clean' and a.actor = 'bob' and a.reason = 'why'"); n != 4 {
		t.Errorf("%d records", n)
	}
	for _, name := range []string{"pause", "resume", "run-now", "delete"} {
		args := []string{"schedules", name, "clean", "--reason", "why"}
		if name == "run-now" || name == "delete" {
			args = append(args, "--yes")
		}
		wantFailure(t, pawl(t, db, args...), 1, "there is no schedule clean", "pawl schedules list")
	}
	holder := connect(t, db)
	if _, err := holder.Exec(t.Context(), "begin; select from pawl.schedule where name = 'still' for update"); err != nil {
		t.Fatal(err)
	}
	wantFailure(t, pawl(t, db, "schedules", "resume", "still", "--reason", "r"), 1, "locked by an open transaction", "ask again")
}

// Scripts read these documents.
func TestSchedules_JSON(t *testing.T) {
	t.Parallel()
	db := withSchedules(t)
	type page struct {
		Schedules []map[string]any
		NextAfter *string `json:"next_after"`
	}
	p := decode[page](t, mustPawl(t, db, "schedules", "list", "--json", "--limit", "2").stdout)
	if len(p.Schedules) != 2 || p.NextAfter == nil || *p.NextAfter != "nightly" {
		t.Fatalf("%+v", p)
	}
	clean, nightly := p.Schedules[0], p.Schedules[1]
	if clean["every_ms"] != 3600000.0 || clean["cron"] != nil || clean["lane"] != "clean" || !strings.HasSuffix(clean["next_at"].(string), "Z") || clean["last_at"] == nil {
		t.Errorf("%v", clean)
	}
	if nightly["cron"] != "30 2 * * *" || nightly["time_zone"] != "Europe/Berlin" || nightly["every_ms"] != nil || nightly["next_at"] != nil || nightly["last_at"] != nil ||
		nightly["lane"] != nil || nightly["missed"] != "all" || nightly["paused"] != false {
		t.Errorf("%v", nightly)
	}
	for _, c := range [][2]string{
		{"schedules list --json --after z", `{"schedules":[]}`},
		{"schedules pause nightly --json --reason r", `{"outcome":"paused"}`},
		{"schedules run-now nightly --json --reason r --yes", `{"outcome":"enqueued","job_id":2}`},
		{"schedules pause none --json --reason r", `{"outcome":"absent","hint":"list the schedules"}`},
	} {
		if r := pawl(t, db, strings.Fields(c[0])...); r.stdout != c[1]+"\n" || (r.code == 1) != strings.Contains(c[1], "absent") {
			t.Errorf("pawl %s: %+v, want %s", c[0], r, c[1])
		}
	}
}

func TestSchedules_NeedReasonAndYes(t *testing.T) {
	t.Parallel()
	db := withSchedules(t)
	for line, want := range map[string][]string{
		"schedules pause clean":                  {"the reason is missing", "--reason"},
		"schedules delete clean --reason r":      {"this would delete schedule clean", "enqueues nothing any more", "add --yes"},
		"schedules run-now clean --reason r":     {"this would run-now schedule clean", "beside the plan", "add --yes"},
		"schedules resume --reason r":            {"it takes 1 argument, not 0", "NAME"},
		"schedules list --limit 0":               {"--limit must lie between 1 and 1000"},
		"schedules list clean":                   {"unexpected argument", "--help"},
		"schedules stop clean":                   {`unknown command "stop"`},
		"schedules pause clean still --reason r": {"it takes 1 argument, not 2"},
	} {
		wantFailure(t, pawl(t, db, strings.Fields(line)...), 2, want...)
	}
	if n := one[int](t, db, "select count(*) from pawl.audit as a where a.actor <> 'setup'"); n != 0 {
		t.Errorf("%d records", n)
	}
}

// Names from programs cannot act on a terminal.
func TestSchedules_TerminalAttack(t *testing.T) {
	t.Parallel()
	db := withSchedules(t)
	exec1(t, db, `update pawl.schedule set name = U&'\001b[2J\202e\000afake line', cron = U&'\001b[2J\202e\000afake line', kind = U&'\001b[2J\202e\000afake line' where name = 'nightly'`)
	for _, args := range [][]string{{"schedules", "list"}, {"schedules", "list", "--json"}, {"schedules", "list", "--limit", "1"}} {
		r := mustPawl(t, db, args...)
		if strings.ContainsAny(r.stdout+r.stderr, "\x1b\u202e") || strings.Contains(r.stdout, "\nfake line") {
			t.Errorf("pawl %q: %q", args, r.stdout)
		}
	}
	if r := mustPawl(t, db, "schedules", "pause", "\x1b[2J\u202e\nfake line", "--reason", "r"); strings.ContainsAny(r.stdout, "\x1b\u202e") {
		t.Errorf("%q", r.stdout)
	}
}
