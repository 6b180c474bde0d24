//go:build proof

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

	"github.com/pawl-go/pawl/internal/testbed/postgres"
	"github.com/pawl-go/pawl/schedule"
)

// A rehearsal follows the runbook. It runs only commands of the runbook, and all of them.
type rehearsal struct {
	*shop
	db       string
	commands []string
	queries  []string
	done     map[string]bool
}

const runbook = "../../docs/operating/restore.md"

func rehearse(s *shop) *rehearsal {
	s.Helper()
	text, err := os.ReadFile(runbook)
	s.must(err)
	r := &rehearsal{shop: s, done: map[string]bool{}}
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

// says runs a command of the runbook and requires matches in its output.
func (r *rehearsal) says(line string, patterns ...string) string {
	r.Helper()
	if !slices.Contains(r.commands, line) {
		r.Fatalf("%s does not say: %s", runbook, line)
	}
	r.done[line] = true
	return r.also(line, patterns...)
}

// settles runs the runbook's verdict for a step, with the fence that the step has.
func (r *rehearsal) settles(step, line string) {
	r.Helper()
	if !slices.Contains(r.commands, line) {
		r.Fatalf("%s does not say: %s", runbook, line)
	}
	r.done[line] = true
	shown := r.also("pawl steps show " + step)
	fence := regexp.MustCompile(`(?m)^  fence +(\d+)$`).FindStringSubmatch(shown)
	if fence == nil {
		r.Fatalf("no fence in\n%s", shown)
	}
	r.also(strings.NewReplacer("inbox/payments p-2 mail", step, "--fence 41", "--fence "+fence[1]).Replace(line), "succeeded")
}

// also runs a command that is similar to one of the runbook.
func (r *rehearsal) also(line string, patterns ...string) string {
	r.Helper()
	answer := pawl(r.T, r.db, shellWords(line)[1:]...)
	if answer.code > 1 {
		r.Fatalf("%s: %s", line, answer.stderr)
	}
	for _, p := range patterns {
		if !regexp.MustCompile("(?m)" + p).MatchString(answer.stdout + answer.stderr) {
			r.Errorf("%s: no %q in\n%s%s", line, p, answer.stdout, answer.stderr)
		}
	}
	return answer.stdout
}

// asks runs the statement of the runbook that contains a text, with words replaced, and returns the
// rows as text.
func (r *rehearsal) asks(holds string, replace ...string) (rows [][]string) {
	r.Helper()
	n := slices.IndexFunc(r.queries, func(q string) bool { return strings.Contains(q, holds) })
	if n < 0 {
		r.Fatalf("%s has no SQL with %q", runbook, holds)
	}
	r.done[r.queries[n]] = true
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

// complete fails for each command of the runbook that was not run.
func (r *rehearsal) complete() {
	r.Helper()
	for _, what := range slices.Concat(r.commands, r.queries) {
		if !r.done[what] {
			r.Errorf("%s, not rehearsed: %s", runbook, what)
		}
	}
}

// A backup can back up a running server, and restore it as another.
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

// A base backup copies the files of a working server, and the WAL written meanwhile, like
// pg_basebackup. It uses PostgreSQL's low-level interface, because the PostgreSQL that tests
// download has no tools.
var baseBackup = backup{
	take: func(t *testing.T, s *postgres.Server) string {
		t.Helper()
		conn := connect(t, s.URL("postgres")) // the backup ends with the session that started it
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

// copyFiles copies a directory with its owners. Files that vanish meanwhile are in the WAL.
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

// dumpWith restores a dump into a server without the roles.
func dumpWith(bin string) backup {
	tool := func(t *testing.T, name string, args ...string) (string, error) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), commandLimit)
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

// A database is lost with all changes since its backup, and restored by the runbook. Remembered
// deliveries are duplicates, forgotten ones run again. Outside systems see no effect twice, except
// those that the runbook names.
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

// A restoration is a shop whose database is lost, and the operator who follows the runbook.
type restoration struct {
	*rehearsal
	first, second *life
	backed, lost  time.Time
	lostFee       string // key of the fee of c-2, which is in the gap
	left          string // ticks whose jobs existed at the backup
}

func restored(t *testing.T, b backup) {
	r := &restoration{rehearsal: rehearse(openShop(t))}
	primary := startServer(t, postgres.Options{RAM: true})
	exec1(t, primary.URL("postgres"), "create database shop")
	r.db = primary.URL("shop")
	r.also("pawl migrate up --roles", "^schema version")
	exec1(t, r.db, shopTables)
	r.asUsual()
	at := b.take(t, primary)
	r.backed = time.Now()
	r.forgotten()
	r.must(primary.Stop())
	r.lost = time.Now()

	r.first.stop()
	r.db = b.restore(t, at).URL("shop")
	r.ready()
	r.findGap()
	r.holdBack()
	r.sendAgain()
	r.tell()
	r.look()
	r.wantEachOnce()
	r.second.stop()
	r.wantEvents()
	r.wantTicks()
	r.complete()
}

// asUsual is the work before the backup. At the backup payment p-3 is being handled, and no event
// is published yet.
func (r *restoration) asUsual() {
	r.first = r.open(1, r.db)
	for _, plan := range []schedule.Schedule{{Name: "close", Missed: schedule.MissedAll}, {Name: "digest", Missed: schedule.MissedAll}, {Name: "report"}} {
		plan.Plan, plan.Queue, plan.Kind = schedule.Every(shopTick), "ticks", "tick"
		_, err := schedule.Put(r.Context(), r.first.pool, plan)
		r.must(err)
	}
	r.first.keep()
	r.order("o-1")
	r.first.webhook("p-1")
	r.first.place("c-1")
	r.first.until("all is done", `(select count(*) from shipped) = 1 and (select count(*) from paid) = 1 and (select count(*) from charged) = 2
 and not exists (select from pawl.job as j where j.queue in ('inbox/payments', 'invoices', 'fees'))`)
	r.first.until("each schedule has ticked", "(select count(distinct t.schedule) from ticked as t) = 3")
	r.first.webhook("p-3")
	<-r.inHand
}

// forgotten is the work in the gap: all of it is done.
func (r *restoration) forgotten() {
	close(r.release)
	r.first.relay()
	r.order("o-2")
	r.first.webhook("p-2")
	r.first.place("c-2")
	r.also("pawl queues set orders --archive=true --reason 'nobody will remember'", "^queue orders")
	r.first.until("all is done", "(select count(*) from shipped) = 2 and (select count(*) from paid) = 3 and (select count(*) from charged) = 4")
	r.first.until("all is published", "not exists (select from pawl_v1.outbox_pending)")
	r.first.until("each schedule has ticked twice",
		"(select min(s.n) from (select count(*) filter (where t.at > "+moment(r.backed)+") as n from ticked as t group by t.schedule) as s) >= 2")
	r.lostFee = one[string](r.T, r.db, "select e.key from pawl.step as e where e.scope = 'job/fees' order by e.created_at desc limit 1")
}

// ready is step 2: schema and roles are there. doctor finds only the silent workers of the backup.
func (r *restoration) ready() {
	r.says("pawl migrate check", `^ok: `)
	r.says("pawl migrate up --roles", "^schema version")
	if !one[bool](r.T, r.db, "select has_table_privilege('pawl_app', 'pawl.job', 'insert')") {
		r.Error("pawl_app may not insert jobs")
	}
	var found []string
	eventually(r.T, "doctor finds the workers of the backup", func() bool {
		found = regexp.MustCompile(`(?m)^\w+: `).FindAllString(r.says("pawl doctor"), -1)
		return slices.Contains(found, "workers: ")
	})
	if len(slices.Compact(found)) != 1 {
		r.Errorf("doctor finds %q", found)
	}
	r.asks("analyze")
}

// findGap is step 3: no row and no change by an operator is newer than the backup.
func (r *restoration) findGap() {
	gap := r.asks("max(c.updated_at)")
	for _, row := range gap {
		for _, column := range row {
			if at, err := time.Parse("2006-01-02 15:04:05.999999-07", column); err == nil && at.After(r.backed) {
				r.Errorf("%v is from after the backup, of %v", row, r.backed)
			}
		}
	}
	if !slices.ContainsFunc(gap, func(row []string) bool { return row[0] == "payments" }) || gap[len(gap)-1][0] != "" {
		r.Errorf("the gap: %q", gap)
	}
}

// holdBack is steps 4 and 5.
func (r *restoration) holdBack() {
	if steps := fmt.Sprint(r.asks("max(e.updated_at)")); !strings.Contains(steps, "[inbox/payments mail at_most_once") || !strings.Contains(steps, "[job/fees charge keyed") {
		r.Error(steps)
	}
	r.says("pawl stale --kind step", "nothing waits for a decision or a worker")
	r.says("pawl queues pause inbox/payments --reason 'restored: mails of the gap are not known here'", "paused")
	r.says("pawl queues pause fees --reason 'restored: fees of the gap would get another key'", "paused")
	eventually(r.T, "the newest tick that was missed is none of the gap", func() bool { return time.Since(r.lost) > 2*shopTick })
	r.says("pawl schedules list", `^digest .* late`, `^report .* late`)
	r.says("pawl schedules pause digest --reason 'restored: the digests of the gap were mailed'", "paused")
	r.says("pawl schedules resume digest --reason 'go on with the next'", "resumed")
	r.left = one[string](r.T, r.db, "select coalesce(string_agg(j.headers ->> 'pawl-tick', ' '), '') from pawl.job as j where j.queue = 'ticks'")
}

// sendAgain is step 6: everything is sent again, remembered deliveries included.
func (r *restoration) sendAgain() {
	r.second = r.open(2, r.db)
	r.second.relay()
	stop := r.second.keep()
	for _, n := range []string{"1", "2"} {
		r.order("o-" + n)
		r.second.webhook("p-" + n)
		if replayed := r.second.place("c-" + n); replayed != (n == "1") {
			r.Errorf("c-%s: replayed %v", n, replayed)
		}
	}
	r.second.webhook("p-3")
	r.second.until("the schedules go on", "(select count(distinct t.schedule) from ticked as t where t.at > "+moment(r.lost)+") = 3")
	stop()
}

// tell is step 7: the mails of p-2 and p-3 and the fee of c-2 were sent in the gap.
func (r *restoration) tell() {
	r.second.until("what was in hand is taken over, and waits", "(select count(*) from pawl.job as j where j.queue = 'inbox/payments' and j.status = 'pending') = 2")
	r.says("pawl jobs list --queue inbox/payments", "delivery +pending")
	r.says("pawl jobs list --queue fees", "fee +pending")
	fees := r.asks("where j.queue = 'fees'")
	if len(fees) != 1 || fees[0][0] != "job/fees" || fees[0][2] != `"fee of c-2"` || fees[0][1] == r.lostFee {
		r.Fatalf("fees that wait: %q; that of the gap was %s", fees, r.lostFee)
	}
	fee := fees[0][1]
	for _, words := range [][]string{nil, {"'p-2'", "'p-3'"}, {"'inbox/payments', 'p-2', 'mail'", "'job/fees', '" + fee + "', 'charge'", "('p-2'", "('fee of c-2'"}} {
		if outcome := r.asks("step_begin", words...); fmt.Sprint(outcome) != "[[unknown]]" {
			r.Errorf("%q: %s", words, outcome)
		}
	}
	r.settles("inbox/payments p-2 mail", "pawl steps settle inbox/payments p-2 mail executed --fence 41 --reason 'in their list of mails sent' --yes")
	r.settles("inbox/payments p-3 mail", "pawl steps settle inbox/payments p-2 mail executed --fence 41 --reason 'in their list of mails sent' --yes")
	r.settles("job/fees "+fee+" charge", "pawl steps settle inbox/payments p-2 mail executed --fence 41 --reason 'in their list of mails sent' --yes")
	r.says("pawl queues resume inbox/payments --reason 'the mails of the gap are told'", "running")
	r.says("pawl queues resume fees --reason 'the fees of the gap are told'", "running")
}

// look is step 8.
func (r *restoration) look() {
	r.second.until("all is done again", `(select count(*) from shipped) = 2 and (select count(*) from paid) = 3 and (select count(*) from placed) = 2 and (select count(*) from charged) = 4
 and not exists (select from pawl.job)`)
	eventually(r.T, "no worker is silent or gone", func() bool {
		status := r.says("pawl status", `unknown commands 0, stale commands 0, unknown steps 0`)
		return !strings.Contains(status, "silent") && !strings.Contains(status, "gone")
	})
	r.says("pawl explain o-2", `delivery orders o-2 +processed`)
	r.says("pawl doctor", "^nothing found")
}

// wantEachOnce checks that remembered work ran only in the first life of the program, and forgotten
// work in both. Outside systems saw each effect once.
func (r *restoration) wantEachOnce() {
	for what, want := range map[string]string{"o-1": "[1]", "p-1": "[1]", "invoice of c-1": "[1]", "fee of c-1": "[1]",
		"o-2": "[1 2]", "p-2": "[1 2]", "p-3": "[1 2]", "invoice of c-2": "[1 2]", "fee of c-2": "[1 2]"} {
		if got := r.lives(what); got != want {
			r.Errorf("%s ran in the lives %s, want %s", what, got, want)
		}
	}
	if got := made(r.bank); got != "fee of c-1, fee of c-2, invoice of c-1, invoice of c-2, p-1, p-2, p-3" {
		r.Errorf("charged: %s", got)
	}
	if got := made(r.mailer); got != "p-1, p-2, p-3" {
		r.Errorf("mailed: %s", got)
	}
}

// wantEvents checks that the events of both orders were published in both lives. Those with a key
// have one id each. The forgotten order's event without a key has two.
func (r *restoration) wantEvents() {
	ids, times := map[string]map[string]bool{}, map[string]int{}
	for _, m := range r.events {
		what := m.Type + " " + string(m.Payload)
		if ids[what] == nil {
			ids[what] = map[string]bool{}
		}
		ids[what][m.ID] = true
		times[what]++
	}
	for what, want := range map[string]int{`OrderShipped "o-1"`: 1, `OrderShipped "o-2"`: 1, `OrderNoted "o-1"`: 1, `OrderNoted "o-2"`: 2} {
		if len(ids[what]) != want || times[what] < 2 {
			r.Errorf("%s went out %d times, under the ids %v", what, times[what], ids[what])
		}
	}
}

// wantTicks checks the ticks of the gap. With MissedAll they ran again, and the rows have no hole.
// With MissedLast, and after pause and resume, only ticks whose jobs existed at the backup ran,
// which left names. Ticks missed before the digest was resumed did not run.
func (r *restoration) wantTicks() {
	if holes := one[int](r.T, r.db, "select (extract(epoch from max(t.at) - min(t.at)) + 1)::int - count(*)::int from ticked as t where t.schedule = 'close'"); holes != 0 {
		r.Errorf("%d ticks of close have no row", holes)
	}
	closed := 0
	for what, lives := range r.runs {
		name, text, _ := strings.Cut(what, " ")
		at, err := time.Parse(time.RFC3339Nano, text)
		switch {
		case err != nil || !slices.Contains(lives, 2) || strings.Contains(r.left, at.Format("2006-01-02T15:04:05.000000Z")):
		case name == "close" && len(lives) == 2:
			closed++
		case name != "close" && (len(lives) == 2 || at.Before(r.lost)):
			r.Errorf("%s ran in the lives %v", what, lives)
		}
	}
	if closed < 2 {
		r.Errorf("%d ticks of close ran again", closed)
	}
}

// moment is a time in SQL.
func moment(at time.Time) string {
	return "timestamptz '" + at.Format(time.RFC3339Nano) + "'"
}
