package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pawl-go/pawl/internal/postgres"
	"github.com/pawl-go/pawl/schedule"
)

// A rehearsal follows the runbook: what it runs must stand there, and all that stands there must be run.
type rehearsal struct {
	*testing.T
	db       string
	commands []string
	queries  []string
	run      map[string]bool
}

const runbook = "../../docs/operating/restore.md"

func rehearse(t *testing.T) *rehearsal {
	t.Helper()
	text, err := os.ReadFile(runbook)
	if err != nil {
		t.Fatal(err)
	}
	r := &rehearsal{T: t, run: map[string]bool{}}
	for _, block := range regexp.MustCompile("(?ms)^ *```(sql)?\n(.*?)^ *```").FindAllStringSubmatch(string(text), -1) {
		if block[1] == "sql" {
			r.queries = append(r.queries, block[2])
			continue
		}
		for line := range strings.Lines(block[2]) {
			command, _, _ := strings.Cut(line, " #")
			r.commands = append(r.commands, strings.TrimSpace(command))
		}
	}
	return r
}

// says runs a command of the runbook and requires lines in what it prints.
func (r *rehearsal) says(line string, patterns ...string) string {
	r.Helper()
	if !slices.Contains(r.commands, line) {
		r.Fatalf("%s does not say: %s", runbook, line)
	}
	r.run[line] = true
	return r.also(line, patterns...)
}

// also runs a command like one of the runbook.
func (r *rehearsal) also(line string, patterns ...string) string {
	r.Helper()
	answer := pawl(r.T, r.db, shellWords(line)[1:]...)
	for _, p := range patterns {
		if !regexp.MustCompile("(?m)" + p).MatchString(answer.stdout + answer.stderr) {
			r.Errorf("%s: no %q in\n%s%s", line, p, answer.stdout, answer.stderr)
		}
	}
	return answer.stdout
}

// asks runs the statements of the runbook that hold some text, with words of them replaced, and returns the rows as texts.
func (r *rehearsal) asks(holds string, replace ...string) (rows [][]string) {
	r.Helper()
	n := slices.IndexFunc(r.queries, func(q string) bool { return strings.Contains(q, holds) })
	if n < 0 {
		r.Fatalf("%s has no SQL with %q", runbook, holds)
	}
	r.run[r.queries[n]] = true
	conn := connect(r.T, r.db)
	defer conn.Close(r.Context())
	results, err := conn.PgConn().Exec(r.Context(), strings.NewReplacer(replace...).Replace(r.queries[n])).ReadAll()
	if err != nil {
		r.Fatalf("%v in\n%s", err, r.queries[n])
	}
	for _, result := range results {
		for _, row := range result.Rows {
			var texts []string
			for _, column := range row {
				texts = append(texts, string(column))
			}
			rows = append(rows, texts)
		}
	}
	return rows
}

// complete fails for what stands in the runbook and was not run.
func (r *rehearsal) complete() {
	r.Helper()
	for _, what := range slices.Concat(r.commands, r.queries) {
		if !r.run[what] {
			r.Errorf("%s, not rehearsed: %s", runbook, what)
		}
	}
}

// A backup is a way to make one of a running server, and to bring it back on another.
type backup struct {
	take    func(t *testing.T, s *postgres.Server) (at string)
	restore func(t *testing.T, at string) *postgres.Server
}

func startServer(t *testing.T, o postgres.Options) *postgres.Server {
	t.Helper()
	s, err := postgres.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Stop() })
	return s
}

// A base backup is a copy of the files of a server at work, and of the WAL written meanwhile: what pg_basebackup makes, by PostgreSQL's
// low-level interface, because the PostgreSQL that tests download has no tools.
var baseBackup = backup{
	take: func(t *testing.T, s *postgres.Server) string {
		t.Helper()
		conn := connect(t, s.URL("postgres")) // the backup ends with the session that began it
		if _, err := conn.Exec(t.Context(), "select pg_backup_start('nightly', true)"); err != nil {
			t.Fatal(err)
		}
		data := filepath.Join(shortDir(t), "data")
		copyFiles(t, s.DataDir(), data)
		for _, running := range []string{"postmaster.pid", "postmaster.opts", "pg_wal"} {
			if err := os.RemoveAll(filepath.Join(data, running)); err != nil {
				t.Fatal(err)
			}
		}
		var label string
		if err := conn.QueryRow(t.Context(), "select b.labelfile from pg_backup_stop(false) as b").Scan(&label); err != nil {
			t.Fatal(err)
		}
		copyFiles(t, filepath.Join(s.DataDir(), "pg_wal"), filepath.Join(data, "pg_wal"))
		name := filepath.Join(data, "backup_label")
		if err := os.WriteFile(name, []byte(label), 0o600); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(data)
		if err != nil {
			t.Fatal(err)
		}
		owner := info.Sys().(*syscall.Stat_t)
		if err := os.Chown(name, int(owner.Uid), int(owner.Gid)); err != nil {
			t.Fatal(err)
		}
		return data
	},
	restore: func(t *testing.T, at string) *postgres.Server {
		t.Helper()
		return startServer(t, postgres.Options{DataDir: at, Durable: true})
	},
}

// copyFiles copies a directory with its owners. What vanishes meanwhile is in the WAL.
func copyFiles(t *testing.T, from, to string) {
	t.Helper()
	out, err := exec.Command("cp", "-a", from, to).CombinedOutput()
	for line := range strings.Lines(string(out)) {
		if !strings.Contains(line, "No such file or directory") {
			t.Fatalf("cp: %v: %s", err, out)
		}
	}
	if err != nil && len(out) == 0 {
		t.Fatal(err)
	}
}

// A dump goes into a server that knows none of the roles.
func dumpWith(bin string) backup {
	tool := func(t *testing.T, name string, args ...string) (string, error) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		out, err := exec.CommandContext(ctx, filepath.Join(bin, name), args...).CombinedOutput()
		return string(out), err
	}
	return backup{
		take: func(t *testing.T, s *postgres.Server) string {
			t.Helper()
			file := filepath.Join(t.TempDir(), "shop.dump")
			if out, err := tool(t, "pg_dump", "--format=custom", "--file="+file, s.URL("shop")); err != nil {
				t.Fatalf("pg_dump: %v: %s", err, out)
			}
			return file
		},
		restore: func(t *testing.T, at string) *postgres.Server {
			t.Helper()
			s := startServer(t, postgres.Options{Durable: true})
			exec1(t, s.URL("postgres"), "create database shop")
			out, err := tool(t, "pg_restore", "--dbname="+s.URL("shop"), at)
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.ExitCode() != 1 {
				t.Fatalf("pg_restore without the roles: %v: %s", err, out)
			}
			for line := range strings.Lines(out) {
				if strings.Contains(line, "error: ") && !regexp.MustCompile(`role "pawl_\w+" does not exist`).MatchString(line) {
					t.Errorf("pg_restore: %s", line)
				}
			}
			return s
		},
	}
}

// A database is lost with all that was done since its backup, and brought back by the runbook, step by step: what was remembered is a
// duplicate, what was forgotten runs, and the world outside, which has forgotten nothing, sees no effect twice but those that the runbook
// names.
func TestRestore(t *testing.T) {
	t.Parallel()
	t.Run("base backup", func(t *testing.T) {
		t.Parallel()
		restored(t, baseBackup)
	})
	t.Run("dump", func(t *testing.T) {
		t.Parallel()
		s := startServer(t, postgres.Options{})
		if _, err := os.Stat(filepath.Join(s.BinDir(), "pg_restore")); err != nil {
			t.Logf("the server in %s has no pg_dump and pg_restore: only the base backup was rehearsed", s.BinDir())
			return
		}
		restored(t, dumpWith(s.BinDir()))
	})
}

func restored(t *testing.T, b backup) {
	r, s := rehearse(t), openShop(t)
	primary := startServer(t, postgres.Options{RAM: true})
	exec1(t, primary.URL("postgres"), "create database shop")
	r.db = primary.URL("shop")
	r.also("pawl migrate up --roles")
	exec1(t, r.db, shopTables)

	// Work as usual. Payment p-3 is in hand when the backup is taken, and no event is published yet.
	first := s.open(1, r.db)
	for _, plan := range []schedule.Schedule{{Name: "close", Missed: schedule.MissedAll}, {Name: "digest", Missed: schedule.MissedAll}, {Name: "report"}} {
		plan.Plan, plan.Queue, plan.Kind = schedule.Every(shopTick), "ticks", "tick"
		_, err := schedule.Put(t.Context(), first.pool, plan)
		s.must(err)
	}
	first.keep()
	s.order("o-1")
	first.webhook("p-1")
	first.place("c-1")
	first.until("all is done", `(select count(*) from shipped) = 1 and (select count(*) from paid) = 1 and (select count(*) from charged) = 2
 and not exists (select from pawl.job as j where j.queue in ('inbox/payments', 'invoices', 'fees'))`)
	first.until("each schedule has ticked", "(select count(distinct t.schedule) from ticked as t) = 3")
	first.webhook("p-3")
	<-s.inHand
	at := b.take(t, primary)
	backed := time.Now()

	// The gap: all this is done, and forgotten.
	close(s.release)
	first.relay()
	s.order("o-2")
	first.webhook("p-2")
	first.place("c-2")
	mustPawl(t, r.db, shellWords("queues set orders --archive=true --reason 'nobody will remember'")...)
	first.until("all is done", "(select count(*) from shipped) = 2 and (select count(*) from paid) = 3 and (select count(*) from charged) = 4")
	first.until("all is published", "not exists (select from pawl_v1.outbox_pending)")
	first.until("each schedule has ticked twice", fmt.Sprintf("(select min(s.n) from (select count(*) filter (where t.at > %s) as n from ticked as t group by t.schedule) as s) >= 2", moment(backed)))
	lostFee := one[string](t, r.db, "select e.key from pawl.effect as e where e.scope = 'job/fees' order by e.created_at desc limit 1")
	s.must(primary.Stop())
	lost := time.Now()

	// 1, 2.
	first.stop()
	r.db = b.restore(t, at).URL("shop")
	r.says("pawl migrate check", `^ok: `)
	r.says("pawl migrate up --roles")
	if !one[bool](t, r.db, "select has_table_privilege('pawl_app', 'pawl.job', 'insert')") {
		t.Error("pawl_app may not insert jobs")
	}
	var found []string
	eventually(t, "doctor finds the workers of the backup", func() bool {
		found = regexp.MustCompile(`(?m)^\w+: `).FindAllString(r.says("pawl doctor"), -1)
		return slices.Contains(found, "workers: ")
	})
	if len(slices.Compact(found)) != 1 {
		t.Errorf("doctor finds %q", found)
	}
	r.asks("analyze")

	// 3. Nothing is there from after the backup.
	gap := r.asks("max(c.updated_at)")
	for _, row := range gap {
		for _, column := range row {
			if at, err := time.Parse("2006-01-02 15:04:05.999999-07", column); err == nil && at.After(backed) {
				t.Errorf("%v is from after the backup, of %v", row, backed)
			}
		}
	}
	if !slices.ContainsFunc(gap, func(row []string) bool { return row[0] == "payments" }) || gap[len(gap)-1][0] != "" {
		t.Errorf("the gap: %q", gap)
	}

	// 4, 5.
	if steps := fmt.Sprint(r.asks("max(e.updated_at)")); !strings.Contains(steps, "[inbox/payments mail at_most_once") || !strings.Contains(steps, "[job/fees charge keyed") {
		t.Error(steps)
	}
	r.says("pawl stale --kind effect", "nothing stands still")
	r.says("pawl queues pause inbox/payments --reason 'restored: mails of the gap are not known here'")
	r.says("pawl queues pause fees --reason 'restored: fees of the gap would get another key'")
	eventually(t, "more than one tick of each schedule was missed since the loss", func() bool { return time.Since(lost) > 2*shopTick })
	r.says("pawl schedules list", `^digest .* late`, `^report .* late`)
	r.says("pawl schedules pause digest --reason 'restored: the digests of the gap were mailed'")
	r.says("pawl schedules resume digest --reason 'go on with the next'")
	left := one[string](t, r.db, "select coalesce(string_agg(j.headers ->> 'pawl-tick', ' '), '') from pawl.job as j where j.queue = 'ticks'")

	// 6.
	second := s.open(2, r.db)
	second.relay()
	stopTicking := second.keep()
	for _, n := range []string{"1", "2"} {
		s.order("o-" + n)
		second.webhook("p-" + n)
		if replayed := second.place("c-" + n); replayed != (n == "1") {
			t.Errorf("c-%s: replayed %v", n, replayed)
		}
	}
	second.webhook("p-3")

	// 7.
	second.until("what the dead worker held is taken over", "not exists (select from pawl.job as j join pawl.worker as w on w.id = j.claimed_by where w.seen_at + w.lease < clock_timestamp())")
	r.says("pawl jobs list --queue inbox/payments")
	r.says("pawl jobs list --queue fees")
	second.until("the payments of the gap wait", "(select count(*) from pawl.job as j where j.queue = 'inbox/payments' and j.status = 'pending') = 2")
	fees := r.asks("where j.queue = 'fees'")
	if len(fees) != 1 || fees[0][2] != `"fee of c-2"` || fees[0][1] == lostFee {
		t.Errorf("fees that wait: %q; that of the gap was %s", fees, lostFee)
	}
	for _, told := range [][]string{{}, {"'p-2'", "'p-3'"}, {"inbox/payments", fees[0][0], "('p-2'", "('fee of c-2'", "'p-2'", "'" + fees[0][1] + "'", "'mail'", "'charge'"}} {
		if outcome := r.asks("effect_begin", told...); fmt.Sprint(outcome) != "[[unknown]]" {
			t.Errorf("%q: %s", told, outcome)
		}
	}
	r.says("pawl effects settle inbox/payments p-2 mail landed --reason 'in their list of mails sent' --yes", "succeeded")
	r.also("pawl effects settle inbox/payments p-3 mail landed --reason 'in their list of mails sent' --yes", "succeeded")
	r.also("pawl effects settle job/fees "+fees[0][1]+" charge landed --reason 'in their list of charges' --yes", "succeeded")
	r.says("pawl queues resume inbox/payments --reason 'the mails of the gap are told'")
	r.says("pawl queues resume fees --reason 'the fees of the gap are told'")

	// 8. All is there, once.
	second.until("the schedules go on", fmt.Sprintf("(select count(distinct t.schedule) from ticked as t where t.at > %s) = 3", moment(lost)))
	stopTicking()
	second.until("all is done again", `(select count(*) from shipped) = 2 and (select count(*) from paid) = 3 and (select count(*) from placed) = 2 and (select count(*) from charged) = 4
 and not exists (select from pawl.job)`)
	eventually(t, "no worker is silent", func() bool {
		return !strings.Contains(r.says("pawl status", `unknown commands 0, stale commands 0, unknown effects 0`), "silent")
	})
	r.says("pawl explain o-2", `delivery orders o-2 +processed`)
	r.says("pawl doctor", "^nothing found")
	for what, want := range map[string]string{"o-1": "[1]", "p-1": "[1]", "invoice of c-1": "[1]", "fee of c-1": "[1]", // remembered
		"o-2": "[1 2]", "p-2": "[1 2]", "p-3": "[1 2]", "invoice of c-2": "[1 2]", "fee of c-2": "[1 2]"} {
		if got := s.lives(what); got != want {
			t.Errorf("%s ran in the lives %s, want %s", what, got, want)
		}
	}
	if got := made(s.bank); got != "fee of c-1, fee of c-2, invoice of c-1, invoice of c-2, p-1, p-2, p-3" {
		t.Errorf("charged: %s", got)
	}
	if got := made(s.mailer); got != "p-1, p-2, p-3" {
		t.Errorf("mailed: %s", got)
	}
	second.stop()
	s.wantEvents()
	s.wantTicks(r.db, lost, left)
	r.complete()
}

// wantEvents: both orders' events went out in both lives, those with a key under one id each; without one, that of the order which was
// forgotten has two.
func (s *shop) wantEvents() {
	s.Helper()
	ids, times := map[string]map[string]bool{}, map[string]int{}
	for _, m := range s.events {
		what := m.Type + " " + string(m.Payload)
		if ids[what] == nil {
			ids[what] = map[string]bool{}
		}
		ids[what][m.ID] = true
		times[what]++
	}
	for what, want := range map[string]int{`OrderShipped "o-1"`: 1, `OrderShipped "o-2"`: 1, `OrderNoted "o-1"`: 1, `OrderNoted "o-2"`: 2} {
		if len(ids[what]) != want || times[what] != 2 {
			s.Errorf("%s went out %d times, under the ids %v", what, times[what], ids[what])
		}
	}
}

// wantTicks: with MissedAll the ticks of the gap ran again, and the rows have no hole. With MissedLast, and after pause and resume, none did
// but those whose jobs were there at the backup, which left names; nor did those that were missed before the digest was resumed.
func (s *shop) wantTicks(db string, lost time.Time, left string) {
	s.Helper()
	if holes := one[int](s.T, db, "select (extract(epoch from max(t.at) - min(t.at)) + 1)::int - count(*)::int from ticked as t where t.schedule = 'close'"); holes != 0 {
		s.Errorf("%d ticks of close have no row", holes)
	}
	closed := 0
	for what, lives := range s.runs {
		name, text, _ := strings.Cut(what, " ")
		at, err := time.Parse(time.RFC3339Nano, text)
		switch {
		case err != nil || !slices.Contains(lives, 2) || strings.Contains(left, at.Format("2006-01-02T15:04:05.000000Z")):
		case name == "close" && len(lives) == 2:
			closed++
		case name != "close" && (len(lives) == 2 || at.Before(lost)):
			s.Errorf("%s ran in the lives %v", what, lives)
		}
	}
	if closed < 2 {
		s.Errorf("%d ticks of close ran again", closed)
	}
}

// moment is a time as SQL reads it.
func moment(at time.Time) string {
	return "timestamptz '" + at.Format(time.RFC3339Nano) + "'"
}
