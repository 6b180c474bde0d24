package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/pawl-go/pawl/doctor"
	"github.com/pawl-go/pawl/pawltest"
)

// The history of a key is printed as text and as JSON. For an unknown key, the searched places are
// listed.
func TestExplain(t *testing.T) {
	t.Parallel()
	db := withInbox(t)
	golden := regexp.MustCompile(`^AT +WHAT +EVENT +DETAIL
\S+Z \(3h ago\) +delivery orders dead +received +fingerprint=[0-9a-f]{64} job=1
\S+Z \(\d+[sm] ago\) +job 1 inbox/orders +enqueued +kind=delivery payload_octets=0 priority=2
\S+Z \(\d+[sm] ago\) +job 1 inbox/orders +dead_letter +attempts=1 fence=0 max_attempts=25
$`)
	r := mustPawl(t, db, "explain", "dead")
	if !golden.MatchString(r.stdout) || r.stderr != "next: pawl dlq show 1; fix the cause, then pawl dlq retry 1 --reason …, or pawl dlq discard 1 --reason …\n" {
		t.Errorf("%s%s", r.stdout, r.stderr)
	}
	if byScope := mustPawl(t, db, "explain", "dead", "--scope", "orders"); strings.Count(byScope.stdout, "\n") != 4 {
		t.Error(byScope.stdout)
	}
	wantFailure(t, pawl(t, db, "explain", "never"), 1, "nothing is known of never; looked in: commands of 0 scopes, deliveries and gates of 1 consumers", "the audit", "it was never received")
	wantFailure(t, pawl(t, db, "explain", "dead", "--scope", "mail"), 1, "looked in: commands, deliveries, gates, enqueue keys and steps of mail, jobs")
	wantFailure(t, pawl(t, db, "explain"), 2, "it takes 1 argument, not 0")
	type story struct {
		Key     string
		Known   bool
		Moments []struct {
			At, Scope        *string
			Kind, Key, Event string
			Detail           map[string]any
		}
		Looked, Beyond []string
		ReadAt         string `json:"read_at"`
	}
	s := decode[story](t, mustPawl(t, db, "explain", "1", "--json").stdout)
	if !s.Known || s.Moments[len(s.Moments)-1].Event != "dead_letter" || len(s.Looked) != 7 {
		t.Errorf("%+v", s)
	}
	r = pawl(t, db, "explain", "never", "--json")
	if s = decode[story](t, r.stdout); r.code != 1 || s.Known || s.Moments == nil {
		t.Errorf("%+v", r)
	}
}

// Thousands of dead letters are counted first, and changed only after consent, each with its audit
// record. Other jobs are not changed.
func TestDLQ_Bulk(t *testing.T) {
	t.Parallel()
	db := withLetters(t, `insert into pawl.job (queue, kind, payload, status, created_at, last_errors)
select 'mail', 'welcome', '', 'dead_letter', now() - n * interval '1 hour', jsonb_build_array(jsonb_build_object('at', now(), 'attempt', 1, 'error', case when n <= 500 then 'connection refused' else 'no such user' end))
  from generate_series(1, 1000) as n`)
	if r := mustPawl(t, db, "dlq", "retry", "--queue", "mail", "--error", "connection refused", "--dry-run"); r.stdout != "would retry 500 dead letters of queue mail whose last error contains \"connection refused\"\n" {
		t.Errorf("%+v", r)
	}
	for line, want := range map[string][]string{
		"dlq retry --queue mail --reason r":         {"this would retry all dead letters of queue mail", "add --yes, or --dry-run"},
		"dlq retry 1 --queue mail --reason r --yes": {"named or selected, not both"},
		"dlq retry --all --yes":                     {"the reason is missing"},
		"dlq discard --older-than -1h --reason r":   {"--older-than is negative"},
		"jobs retry --queue mail --reason r":        {"unknown flag: --queue"},
		"dlq retry --reason r":                      {"the id of the job is missing"},
	} {
		wantFailure(t, pawl(t, db, strings.Fields(line)...), 2, want...)
	}
	if n := one[int](t, db, "select count(*) from pawl.audit"); n != 0 {
		t.Errorf("%d records", n)
	}
	if r := mustPawl(t, db, "dlq", "retry", "--queue", "mail", "--error", "connection refused", "--reason", "it is back", "--actor", "ann", "--yes"); r.stdout != "500 of 500 dead letters of queue mail whose last error contains \"connection refused\" retried\n" {
		t.Errorf("%+v", r)
	}
	if r := mustPawl(t, db, "dlq", "discard", "--kind", "welcome", "--older-than", "700h", "--reason", "users are gone", "--yes", "--json"); r.stdout != `{"dry_run":false,"matched":301,"done":301,"refused":0,"absent":0,"locked":0,"left_out":0}`+"\n" {
		t.Errorf("%+v", r)
	}
	if got := one[string](t, db, "select string_agg(s.n, ' ') from (select concat_ws(':', j.status, count(*)) as n from pawl.job as j where j.queue = 'mail' group by j.status order by 1) as s"); got != "dead_letter:199 pending:500" {
		t.Error(got)
	}
	if n := one[int](t, db, "select count(*) from pawl.audit"); n != 801 {
		t.Errorf("%d records", n)
	}
	if got := statuses(t, db)[:35]; got != "1 dead_letter, 2 unknown, 3 pending" {
		t.Error(got)
	}
	locker := connect(t, db)
	if _, err := locker.Exec(t.Context(), "begin; select from pawl.job where id = 1 for update"); err != nil {
		t.Fatal(err)
	}
	r := pawl(t, db, "dlq", "discard", "--queue", "orders", "--reason", "r", "--yes")
	if r.stdout != "0 of 1 dead letters of queue orders discarded\n" {
		t.Errorf("%+v", r)
	}
	// it took more than a second and reported progress
	if _, last, _ := strings.Cut(r.stderr, "1 of 1\n"); last != "" {
		r.stderr = last
	}
	wantFailure(t, result{r.code, "", r.stderr}, 1, "not done for 1 of 1", "1 locked")
}

// mismatches makes three dead letters: 7 has a known key with another payload, 8 is older than the
// retention, and 9 is an ordinary one.
const mismatches = `insert into pawl.job (queue, kind, payload, status, headers, last_errors)
select 'inbox/shop', 'delivery', '', 'dead_letter', jsonb_build_object('pawl-key', 'order-' || n),
       jsonb_build_array(jsonb_build_object('at', now(), 'attempt', 0, 'code', (array['mismatch', 'P4051', 'P0001'])[n], 'error', 'it says why'))
  from generate_series(1, 3) as n`

// A dead letter that may take effect a second time is retried only after a warning: by id with
// --yes, in bulk with a flag.
func TestDLQ_Doubles(t *testing.T) {
	t.Parallel()
	db := withLetters(t, mismatches)
	for line, want := range map[string][]string{
		"dlq retry 7 --reason r":                       {"this would retry job 7: job 7 (order-1) has a known key with another payload and would run in addition to the first", "add --yes"},
		"jobs retry 9 8 --reason r":                    {"this would retry job 8: job 8 (order-2) is older than the retention period", "add --yes"},
		"dlq retry 7 --include-duplicates --reason r":  {"with ids, add --yes"},
		"dlq discard --all --include-duplicates --yes": {"unknown flag"},
	} {
		wantFailure(t, pawl(t, db, strings.Fields(line)...), 2, want...)
	}
	if got := one[int](t, db, "select count(*) from pawl.audit"); got != 0 {
		t.Errorf("%d were changed", got)
	}
	const left = "left out: 2 that may take effect a second time; pawl stale says why, --include-duplicates includes them\n"
	if r := mustPawl(t, db, "dlq", "retry", "--queue", "inbox/shop", "--dry-run"); r.stdout != "would retry 1 dead letters of queue inbox/shop\n" || r.stderr != left {
		t.Errorf("%+v", r)
	}
	if r := mustPawl(t, db, "dlq", "retry", "--queue", "inbox/shop", "--reason", "r", "--yes", "--json"); r.stdout != `{"dry_run":false,"matched":1,"done":1,"refused":0,"absent":0,"locked":0,"left_out":2}`+"\n" || r.stderr != left {
		t.Errorf("%+v", r)
	}
	mustPawl(t, db, "dlq", "retry", "7", "--reason", "both are wanted", "--yes")
	if r := mustPawl(t, db, "dlq", "retry", "--queue", "inbox/shop", "--include-duplicates", "--reason", "it never took effect", "--yes"); r.stdout != "1 of 1 dead letters of queue inbox/shop retried\n" || r.stderr != "" {
		t.Errorf("%+v", r)
	}
	if got := one[string](t, db, "select string_agg(a.target, ' ' order by a.id) from pawl.audit as a"); got != "job 9 job 7 job 8" {
		t.Error(got)
	}
	// pending again, so nothing to warn of
	mustPawl(t, db, "jobs", "retry", "7", "--reason", "at once")
}

// The table of dead letters has the keys of deliveries, and the advice for each is a command.
func TestDLQ_Keys(t *testing.T) {
	t.Parallel()
	db := withLetters(t, mismatches)
	list := mustPawl(t, db, "dlq", "list", "--queue", "inbox/shop").stdout
	if !regexp.MustCompile(`(?m)^7 +inbox/shop +delivery +dead_letter +0/25 +0 +\d+[sm] +order-1 +it says why$`).MatchString(list) {
		t.Error(list)
	}
	if r := mustPawl(t, db, "dlq", "list", "--queue", "inbox/shop", "--limit", "1", "--json"); !strings.Contains(r.stdout, `"last_code":"mismatch","payload_octets":0,"key":"order-1"`) {
		t.Error(r.stdout)
	}
	stale := mustPawl(t, db, "stale", "--kind", "job").stdout
	for _, line := range []string{`job +inbox/shop +7 \(order-1\) +dead_letter .*another payload.*run this one in addition: pawl dlq discard 7 --reason …, unless you want both$`,
		`job +inbox/shop +8 \(order-2\) +dead_letter .*may have taken effect: find out, then pawl dlq discard 8 `, `job +inbox/shop +9 \(order-3\) .*fix the cause, then pawl dlq retry 9 `,
		`job +orders +2 +unknown .*pawl stale --kind step$`} {
		if !regexp.MustCompile("(?m)^" + line).MatchString(stale) {
			t.Errorf("no line %s in\n%s", line, stale)
		}
	}
	for _, line := range append(strings.Split(list, "\n"), strings.Split(mustPawl(t, db, "dlq", "list").stdout, "\n")...) {
		if len([]rune(line)) > 120 {
			t.Errorf("%d columns: %s", len([]rune(line)), line)
		}
	}
	if r := mustPawl(t, db, "explain", "7"); !strings.Contains(r.stderr, "next: pawl dlq show 7; it has a known key with another payload") {
		t.Errorf("%+v", r)
	}
}

// The status is one screen of text, and the same as JSON.
func TestStatus(t *testing.T) {
	t.Parallel()
	db := withLetters(t, "select pawl_v1.outbox_append('billing', 'OrderPlaced', null, null, '')", "select pawl_v1.worker_register('w2'); update pawl.worker set seen_at = now() - interval '1 hour' where name = 'w2'",
		"select pawl_v1.worker_register('w3'); update pawl.worker set presence = true, seen_at = now() - interval '3 seconds' where name = 'w3'",
		`select pawl_v1.queue_set('orders', '{"mode": "paused"}', 'ann', 'the bank is away'), pawl_v1.consumer_report('shop', 1209600000, '{"horizon_ms": 345600000}'), pawl_v1.consumer_report('audit', null)`)
	r := mustPawl(t, db, "status")
	for _, line := range []string{`QUEUE +DUE +OLDEST +LATER +WAITING +PROCESSING +DEAD +UNKNOWN +CANCELLED +BLOCKED`, `orders \(paused\) +0 +- +1 +1 +1 +1 +1 +1 +0`, `outbox/billing +1 +\d+[sm]`,
		`shop +14d +4d +\d+[sm]`, `audit +for ever +- +\d+[sm]`,
		`1 +w1 +alive +\d+[sm] +1 +off`, `2 +w2 +silent +1h +0 +off`, `3 +w3 +gone +\d+[sm] +0 +on`, `billing +OrderPlaced +1 +0 +\d+[sm]`, `unknown commands 0, stale commands 0, unknown steps 0; oldest snapshot: none`} {
		if !regexp.MustCompile("(?m)^" + line).MatchString(r.stdout) {
			t.Errorf("no line %s in\n%s", line, r.stdout)
		}
	}
	type status struct {
		Queues []struct {
			ID                                                               int64
			Name                                                             string
			Archive                                                          bool
			Due, Later, Waiting, Processing, Begun, Dead, Unknown, Cancelled int
			ReadAt                                                           string  `json:"read_at"`
			DueSince                                                         *string `json:"due_since"`
			LanesBlocked                                                     int     `json:"lanes_blocked"`
			Mode                                                             string
		}
		Consumers []struct {
			Name         string
			RemembersMS  int    `json:"remembers_ms"`
			RedeliveryMS int    `json:"redelivery_ms"`
			SeenAt       string `json:"seen_at"`
		}
		Workers []struct {
			ID             int
			Name           string
			Presence       bool
			State          string
			Held           int
			SeenAt         string `json:"seen_at"`
			LeaseExpiresAt string `json:"lease_expires_at"`
		}
		Outbox          []map[string]any
		UnknownCommands int     `json:"unknown_commands"`
		StaleCommands   int     `json:"stale_commands"`
		UnknownSteps    int     `json:"unknown_steps"`
		OldestSnapshot  *string `json:"oldest_snapshot"`
		XminAge         int     `json:"xmin_age"`
		ReadAt          string  `json:"read_at"`
	}
	if s := decode[status](t, mustPawl(t, db, "status", "--json").stdout); len(s.Queues) != 2 || s.Queues[0].Dead != 1 || len(s.Workers) != 3 || s.Workers[2].State != "gone" || s.Workers[0].State != "alive" || s.Workers[1].State != "silent" ||
		s.Queues[0].Mode != "paused" || len(s.Consumers) != 2 || s.Consumers[1].RemembersMS != 14*24*3600*1000 {
		t.Errorf("%+v", s)
	}
	if r := mustPawl(t, pawltest.URL(t), "status"); !strings.HasPrefix(r.stdout, "no queues\n\nno workers\n\nno consumers\n\nno events\n\nunknown commands 0") {
		t.Errorf("%q", r.stdout)
	}
}

// Findings exit with 1, none with 0. The test server is fast and not durable, so those checks are
// skipped.
func TestDoctor(t *testing.T) {
	t.Parallel()
	db := pawltest.URL(t)
	// other tests share the server
	well := []string{"doctor", "--skip", "durability,snapshots,collations"}
	if r := mustPawl(t, db, well...); !strings.HasPrefix(r.stdout, "nothing found in engine, contract, timeouts, replication, standbys, pooler, prepared, vacuum") || !strings.HasSuffix(r.stdout, "\nnothing waits for a decision or a worker\n") {
		t.Errorf("%+v", r)
	}
	exec1(t, db, "insert into pawl.job (queue, kind, payload, status) select 'q', 'k', '', s::pawl.job_status from unnest('{dead_letter,dead_letter,unknown,cancelled}'::text[]) as s")
	if r := mustPawl(t, db, well...); !strings.HasSuffix(r.stdout, "\nwaits for a decision or a worker: 2 dead_letter, 1 unknown; see: pawl stale\n") {
		t.Errorf("%+v", r)
	}
	exec1(t, db, "insert into pawl.job (queue, kind, payload, available_at) values ('q', 'unheard', '', now() - interval '1 hour')")
	r := pawl(t, db, well...)
	if !strings.Contains(r.stdout, "waiting: 1 due job of kind unheard in queue q") || !strings.Contains(r.stdout, "\n  why  no worker claims them") || !strings.Contains(r.stdout, "\n  fix  no worker that runs serves queue q") {
		t.Errorf("%s", r.stdout)
	}
	wantFailure(t, result{r.code, "", r.stderr}, 1, "findings: 1", "--skip")
	type diagnosis struct {
		Findings   []struct{ Check, What, Why, Fix string }
		Unchecked  []struct{ Check, Why string }
		Checked    []string
		StandStill map[string]int `json:"stand_still"`
	}
	r = pawl(t, db, append(well, "--json")...)
	if d := decode[diagnosis](t, r.stdout); r.code != 1 || len(d.Findings) != 1 || d.Findings[0].Check != "waiting" || d.Unchecked == nil || len(d.Checked) != len(doctor.Checks())-3 || d.StandStill["dead_letter"] != 2 {
		t.Errorf("%+v", d)
	}
	mustPawl(t, db, append(well, "--waiting", "2h")...)
	wantFailure(t, pawl(t, db, "doctor", "--skip", "luck"), 2, `there is no check "luck"`, "known: engine, contract")
	r = pawl(t, empty(t), "doctor")
	if r.code != 1 || !strings.Contains(r.stdout, "fix  run: pawl migrate up") {
		t.Errorf("%+v", r)
	}
}

// If a login may not read Pawl's tables, the checks fail instead of passing.
func TestDoctor_FailsIfItCouldNotLook(t *testing.T) {
	t.Parallel()
	stranger := strings.Replace(strict(t), "postgres@", "meek@", 1)
	mustPawl(t, strings.Replace(stranger, "meek@", "postgres@", 1), "migrate", "up")
	r := pawl(t, stranger, "doctor", "--skip", "durability,snapshots,collations")
	if !strings.Contains(r.stdout, "not checked: contract") {
		t.Errorf("%s", r.stdout)
	}
	wantFailure(t, result{r.code, "", r.stderr}, 1, "not checked: contract", "grant pawl_reader", "meek", "--skip")
}

// Rows that wait for a decision are listed with the next step. A command is settled, with an audit
// record.
func TestStaleAndCommands(t *testing.T) {
	t.Parallel()
	db := withLetters(t, `select pawl_v1.command_claim('orders/acme', 'k 1', sha256(''));
select pawl_v1.command_fail('orders/acme', 'k 1', c.fence, c.hash, '{"code": "timeout", "error": "no answer"}', '{"unknown": true}') from pawl.command as c`)
	r := mustPawl(t, db, "stale")
	for _, line := range []string{`command +orders/acme +k 1 +unknown +\S+Z +.* then: pawl commands settle orders/acme 'k 1' executed\|not_executed`, `job +orders +1 +dead_letter`, `job +orders +2 +unknown`} {
		if !regexp.MustCompile("(?m)^" + line).MatchString(r.stdout) {
			t.Errorf("no line %s in\n%s", line, r.stdout)
		}
	}
	if r := mustPawl(t, db, "stale", "--kind", "command", "--json"); strings.Count(r.stdout, `"kind":"command"`) != 1 || strings.Contains(r.stdout, `"job"`) {
		t.Error(r.stdout)
	}
	if r := mustPawl(t, db, "commands", "list", "--stale"); !regexp.MustCompile(`(?m)^orders/acme +k 1 +unknown +1 +`).MatchString(r.stdout) {
		t.Error(r.stdout)
	}
	if r := mustPawl(t, db, "commands", "show", "orders/acme", "k 1"); !strings.Contains(r.stdout, "  status     unknown\n") || !strings.Contains(r.stdout, "changes by hand: 0") {
		t.Error(r.stdout)
	}
	for line, want := range map[string][]string{
		"commands settle orders/acme k1 maybe --reason r --yes":              {"the verdict is executed or not_executed"},
		"commands settle orders/acme k1 not_executed --result {} --reason r": {"has no result"},
		"commands settle orders/acme k1 executed --fence 1 --reason r":       {"a wrong verdict doubles or loses", "add --yes"},
		"commands settle orders/acme k1 executed --reason r --yes":           {"the attempt that your verdict is about", "--fence", "pawl commands show"},
		"commands settle orders/acme k1 executed --fence 1 --yes":            {"the reason is missing"},
		"commands show orders/acme":                                          {"it takes 2 arguments"},
		"commands list --status dead":                                        {`unknown status "dead"`},
		"stale --kind lane":                                                  {"the kind is command, step or job"},
		"purge --yes":                                                        {"the reason is missing", "--reason"},
		"purge --reason r":                                                   {"this would purge command, job_key, step", "add --yes"},
		"purge --table gate --yes":                                           {`no table "gate" is purged`},
		"purge --table inbox --yes":                                          {"belong to a consumer"},
		"purge --table inbox --consumer c --yes":                             {"do not store when", "how old"},
		"purge --table fence --consumer c --older-than 1h --yes":             {"belong to no consumer"},
	} {
		wantFailure(t, pawl(t, db, strings.Fields(line)...), 2, want...)
	}
	wantFailure(t, pawl(t, db, "commands", "settle", "orders/acme", "k1", "executed", "--fence", "1", "--reason", "r", "--yes"), 1, "there is no command k1")
	wantFailure(t, pawl(t, db, "commands", "settle", "orders/acme", "k 1", "executed", "--fence", "9", "--reason", "r", "--yes"), 1, "tried again since you looked", "pawl commands show")
	if r := mustPawl(t, db, "commands", "settle", "orders/acme", "k 1", "executed", "--fence", "1", "--result", `{"id": 17}`, "--reason", "it is there", "--actor", "ann", "--yes"); r.stdout != "command k 1 of scope orders/acme settled as executed\n" {
		t.Errorf("%+v", r)
	}
	wantFailure(t, pawl(t, db, "commands", "settle", "orders/acme", "k 1", "executed", "--fence", "1", "--reason", "r", "--yes"), 1, "is not unknown", "pawl commands show orders/acme 'k 1'")
	if r := mustPawl(t, db, "commands", "show", "orders/acme", "k 1", "--json"); !strings.Contains(r.stdout, `"status":"succeeded"`) || !strings.Contains(r.stdout, `"verb":"command_settle"`) {
		t.Error(r.stdout)
	}
	wantFailure(t, pawl(t, db, "commands", "show", "orders/acme", "never"), 1, "there is no command never", "pawl explain never")
	if r := mustPawl(t, db, "commands", "list", "--scope", "none"); r.stderr != "no commands\n" {
		t.Errorf("%+v", r)
	}
}

// Expired rows are purged, as from cron. --dry-run counts them first.
func TestPurge(t *testing.T) {
	t.Parallel()
	db := pawltest.URL(t)
	exec1(t, db, `insert into pawl.command (scope, key, hash, status, created_at, expires_at)
select 's', n::text, sha256(''), case n when 1 then 'unknown' else 'succeeded' end, now() - interval '3 days', now() - interval '2 days' from generate_series(1, 8) as n;
insert into pawl.inbox (consumer, key, hash, received_at, processed_at) select 'c', n::text, sha256(''), now() - interval '3 days', now() from generate_series(1, 4) as n`)
	if r := mustPawl(t, db, "purge", "--dry-run"); !regexp.MustCompile(`^TABLE +PURGEABLE\npawl.command +7\npawl.job_key +0\npawl.step +0\n$`).MatchString(r.stdout) {
		t.Errorf("%s", r.stdout)
	}
	if r := mustPawl(t, db, "purge", "--reason", "hourly", "--actor", "cron", "--yes", "--json"); r.stdout != `{"dry_run":false,"tables":[{"table":"command","rows":7},{"table":"job_key","rows":0},{"table":"step","rows":0}]}`+"\n" {
		t.Errorf("%s", r.stdout)
	}
	wantFailure(t, pawl(t, db, "purge", "--table", "inbox", "--consumer", "c", "--older-than", "48h", "--reason", "r", "--yes"), 2, "never reported for how long", "pawl purge --unreported")
	if r := mustPawl(t, db, "purge", "--table", "inbox", "--consumer", "c", "--older-than", "48h", "--unreported", "--reason", "r", "--actor", "ann", "--yes"); !strings.Contains(r.stdout, "pawl.inbox  4") {
		t.Errorf("%s", r.stdout)
	}
	if n := one[int](t, db, "select count(*) from pawl.command"); n != 1 {
		t.Errorf("%d left", n)
	}
	records := "select string_agg(concat_ws(' ', a.actor, a.verb, a.target, a.before ->> 'rows', a.reason), ', ' order by a.id) from pawl.audit as a"
	want := "cron purge table command 7 hourly, cron purge table job_key 0 hourly, cron purge table step 0 hourly, ann purge table inbox c 4 r"
	if got := one[string](t, db, records); got != want {
		t.Errorf("recorded %s, want %s", got, want)
	}
}

// Shell completion has the commands and the flags.
func TestCompletion(t *testing.T) {
	t.Parallel()
	if r := mustPawl(t, "", "--help"); !strings.Contains(r.stdout, "completion") {
		t.Error(r.stdout)
	}
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if r := mustPawl(t, "", "completion", shell); !strings.Contains(r.stdout, "pawl") || len(r.stdout) < 1000 {
			t.Errorf("%s: %s", shell, r.stdout)
		}
	}
	for line, want := range map[string]string{"dlq re": "retry\t", "dlq retry --er": "--error\t", "stat": "status\t", "commands settle --re": "--reason\t"} {
		if r := mustPawl(t, "", append([]string{"__complete"}, strings.Fields(line)...)...); !strings.Contains(r.stdout, want) {
			t.Errorf("%s: %s", line, r.stdout)
		}
	}
}
