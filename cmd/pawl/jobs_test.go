package main

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"unicode"

	"github.com/pawl-go/pawl/pawltest"
)

// letters makes dead letter 1, unknown 2, pending 3 in back-off, processing 4 of worker "w1",
// cancelled 5, waiting 6.
const letters = `
select pawl_v1.worker_register('w1', '1 minute');
insert into pawl.lane (queue, name) values ('orders', 'account-17');
insert into pawl.job (queue, kind, payload, lane_id, position, status, attempts, max_attempts, fence, created_at, available_at, claimed_by, last_errors)
select 'orders', 'charge', convert_to('{"cents": ' || g || '}', 'UTF8'), case when g = 6 then 1 end, case when g = 6 then 6 end,
       (array['dead_letter', 'unknown', 'pending', 'processing', 'cancelled', 'waiting'])[g], 3, 3, 3,
       clock_timestamp() - interval '3 hours 5 minutes', clock_timestamp() + interval '9 minutes 50 seconds',
       case when g = 4 then 1 end, '[{"at": "2026-03-01T10:00:00Z", "attempt": 3, "code": "P0001", "error": "stock is away"}]'
  from generate_series(1, 6) as g;
update pawl.worker set seen_at = clock_timestamp();
select setval('pawl.position_seq', 6);
`

// withLetters is a fresh database with letters. They are not in its template, because the template
// may be older than the ages of these rows.
func withLetters(t *testing.T, more ...string) string {
	t.Helper()
	db := pawltest.URL(t)
	exec1(t, db, letters+strings.Join(more, ";\n"))
	return db
}

func statuses(t *testing.T, db string) string {
	t.Helper()
	return one[string](t, db, "select coalesce(string_agg(j.id || ' ' || j.status, ', ' order by j.id), '') from pawl.job as j")
}

// Each verb changes the jobs that it can, several at once. It names the others with the next step,
// and exits with 1.
func TestJobs_Verbs(t *testing.T) {
	t.Parallel()
	db := withLetters(t)
	if r := mustPawl(t, db, "dlq", "retry", "1", "1", "--reason", "stock is back"); r.stdout != "job 1 retried (was dead_letter)\n" || r.stderr != "" {
		t.Errorf("%+v", r)
	}
	wantFailure(t, pawl(t, db, "dlq", "retry", "1", "--reason", "again"), 1, "dlq.retry: job 1 is pending", "dead_letter or unknown only")
	wantFailure(t, pawl(t, db, "dlq", "discard", "1", "--reason", "r", "--yes"), 1, "job 1 is pending")
	wantFailure(t, pawl(t, db, "dlq", "retry", "2", "--reason", "r"), 1, "job 2 is unknown", "verdict")
	wantFailure(t, pawl(t, db, "dlq", "show", "3"), 1, "job 3 is pending, not a dead letter", "pawl jobs show 3")
	wantFailure(t, pawl(t, db, "jobs", "discard", "4", "--reason", "r", "--yes"), 1, "job 4 is processing", "cancel the job first")
	wantFailure(t, pawl(t, db, "jobs", "retry", "9", "--reason", "r"), 1, "there is no job 9")

	r := pawl(t, db, "jobs", "cancel", "3", "4", "5", "9", "--reason", "called off", "--yes")
	if r.code != 1 || r.stdout != "job 3 cancelled (was pending)\njob 4 cancelled (was processing)\n" {
		t.Errorf("%+v", r)
	}
	wantFailure(t, result{r.code, "", r.stderr}, 1, "not done for 2 of 4: job 5 is cancelled, there is no job 9", "retry or discard it")

	mustPawl(t, db, "jobs", "discard", "5", "6", "--reason", "r", "--actor", "bob", "--yes")
	wantFailure(t, pawl(t, db, "jobs", "show", "5"), 1, "there is no job 5", "bob discarded it at 2")
	if got := statuses(t, db); got != "1 pending, 2 unknown, 3 cancelled, 4 cancelled" {
		t.Error(got)
	}
	if n := one[int](t, db, "select count(*) from pawl.audit"); n != 5 {
		t.Errorf("%d records, want 5", n)
	}
}

// Without consent or a reason nothing is changed.
func TestJobs_NeedReasonAndYes(t *testing.T) {
	t.Parallel()
	db := withLetters(t)
	before := statuses(t, db)
	for line, want := range map[string][]string{
		"jobs retry 1":                    {"the reason is missing", "--reason"},
		"dlq discard 1 --yes":             {"the reason is missing", "--reason"},
		"jobs cancel 3 --reason= --yes":   {"the reason is missing", "--reason"},
		"jobs cancel 3 4 --reason r":      {"this would cancel 2 jobs (3 4): running attempts lose their work", "add --yes"},
		"dlq discard 1 --reason r":        {"this would discard job 1: the payload is lost, except for deliveries that a consumer has kept", "add --yes"},
		"jobs retry --reason r":           {"the id of the job is missing", "pawl jobs retry 17"},
		"jobs retry seventeen --reason r": {`"seventeen" is not the id of a job`, "see: pawl jobs list"},
		"dlq show 0":                      {`"0" is not the id`, "see: pawl dlq list"},
		"jobs show 99999999999999999999":  {"is not the id"},
		"jobs list 17":                    {"unexpected argument", "--help"},
		"jobs list --status dead":         {`unknown status "dead"`, "dead_letter"},
		"jobs list --limit 0":             {"--limit must lie between 1 and 1000"},
		"jobs list --limit 1001":          {"must lie between 1 and 1000", "it is 1001"},
		"dlq list --status pending":       {"unknown flag: --status"},
		"dlq cancel 1":                    {`unknown command "cancel"`},
		"jobs retry 1 --reason r --actor " + strings.Repeat("a", 256): {"actor must have 1 to 255 octets"},
	} {
		wantFailure(t, pawl(t, db, strings.Fields(line)...), 2, want...)
	}
	if after := statuses(t, db); after != before {
		t.Errorf("%s, want %s", after, before)
	}
	wantFailure(t, pawl(t, "", "dlq", "list"), 2, "no database", "PAWL_DATABASE_URL")
	wantFailure(t, pawl(t, empty(t), "dlq", "list"), 1, "not installed", "run: pawl migrate up")
}

// An attempt that is about to commit is left alone. The error names the session to end.
func TestJobsCancel_Locked(t *testing.T) {
	t.Parallel()
	db := withLetters(t)
	attempt := connect(t, db)
	if _, err := attempt.Exec(t.Context(), "begin; select pawl_v1.job_hold(4, 3)"); err != nil {
		t.Fatal(err)
	}
	r := pawl(t, db, "jobs", "cancel", "4", "3", "--reason", "r", "--yes")
	if r.stdout != "job 3 cancelled (was pending)\n" {
		t.Errorf("stdout %q", r.stdout)
	}
	wantFailure(t, result{r.code, "", r.stderr}, 1, "job 4 is locked by an open transaction",
		fmt.Sprintf("select pg_terminate_backend(%d)", attempt.PgConn().PID()))
}

// A login without the role learns which role it needs, and nothing is changed.
func TestJobs_NeedTheOperatorsRole(t *testing.T) {
	t.Parallel()
	base := strict(t)
	mustPawl(t, base, "migrate", "up", "--roles")
	exec1(t, base, letters+"; grant pawl_app to meek")
	meek := at(t, base, func(u *url.URL, _ url.Values) { u.User = url.User("meek") })
	mustPawl(t, meek, "jobs", "list")
	wantFailure(t, pawl(t, meek, "jobs", "retry", "1", "--reason", "r"), 1, `user "meek"`, "permission denied", "grant pawl_operator")
	wantFailure(t, pawl(t, meek, "jobs", "show", "1"), 1, "permission denied for table audit", "grant pawl_reader")
	exec1(t, base, "grant pawl_operator to meek")
	mustPawl(t, meek, "jobs", "show", "1")
	mustPawl(t, meek, "jobs", "retry", "1", "--reason", "r")
	mustPawl(t, meek, "jobs", "cancel", "4", "--reason", "r", "--yes")
	mustPawl(t, meek, "jobs", "discard", "4", "--reason", "r", "--yes")
}

// Text from producers, workers and other operators cannot act on the operator's terminal, in any
// command.
func TestJobs_TerminalAttack(t *testing.T) {
	t.Parallel()
	const bad = `U&'\001b[2J\001b]0;pwned\0007\202e\000afake line\009b31m'`
	db := withLetters(t, `
update pawl.worker set name = `+bad+`;
update pawl.job set queue = `+bad+` || id, kind = `+bad+`, payload = convert_to(`+bad+`, 'UTF8'), headers = jsonb_build_object(`+bad+`, `+bad+`),
  last_errors = jsonb_build_array(jsonb_build_object('at', now(), 'attempt', 1, 'code', `+bad+`, 'error', `+bad+`));
select pawl_v1.job_discard(5, `+bad+`, `+bad+`), pawl_v1.job_retry(3, `+bad+`, `+bad+`);`)
	for _, line := range []string{"jobs list", "jobs list --json", "dlq list", "jobs show 4 3", "jobs show 4 3 --json", "jobs show 5", "jobs show 5 --json",
		"jobs retry 4 --reason r", "jobs retry 1 --reason r --json"} {
		r := pawl(t, db, strings.Fields(line)...)
		out := r.stdout + r.stderr
		if i := strings.IndexFunc(out, func(c rune) bool { return c != '\n' && !unicode.IsPrint(c) }); i >= 0 {
			t.Errorf("pawl %s: %q reaches the terminal", line, out[i:min(len(out), i+20)])
		}
		if strings.Contains(out, "\nfake line") {
			t.Errorf("pawl %s: a line was forged", line)
		}
		if len(out) == 0 {
			t.Errorf("pawl %s: nothing", line)
		}
	}
	r := pawl(t, db, "jobs", "retry", "\x1b[2J\u202e", "--reason", "r")
	wantFailure(t, r, 2, `"\x1b[2J\u202e" is not the id`)
}
