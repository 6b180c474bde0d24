package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pawl-go/pawl/migrate"
	"github.com/pawl-go/pawl/pawltest"
	"github.com/pawl-go/pawl/schema"
)

// A schema is installed, checked and removed. Progress goes to stderr, results to stdout.
func TestMigrate_UpStatusCheckDown(t *testing.T) {
	t.Parallel()
	db := empty(t)
	wantFailure(t, pawl(t, db, "migrate", "check"), 1, "schema is not installed", "run: pawl migrate up")
	if r := mustPawl(t, db, "migrate", "status"); !strings.Contains(r.stdout, "missing") || !strings.Contains(r.stdout, "not ok") {
		t.Errorf("status of an empty database: %q", r.stdout)
	}
	if r := mustPawl(t, db, "migrate", "up"); r.stdout != "schema version 1 (1 applied now)\n" || r.stderr != "applying 0001_init\n" {
		t.Errorf("up: %+v", r)
	}
	if r := mustPawl(t, db, "migrate", "up"); r.stdout != "schema version 1 (0 applied now)\n" || r.stderr != "" {
		t.Errorf("second up: %+v", r)
	}
	if r := mustPawl(t, "", "migrate", "check", "--database-url", db); !strings.HasPrefix(r.stdout, "ok:") {
		t.Errorf("check: %+v", r)
	}
	if r := mustPawl(t, db, "migrate", "status"); !strings.Contains(r.stdout, "0001     init  applied\nok:") {
		t.Errorf("status: %q", r.stdout)
	}
	if r := mustPawl(t, db, "migrate", "down", "--to", "1"); r.stdout != "schema version 1 (0 removed now)\n" {
		t.Errorf("down to where we are: %+v", r)
	}
	if r := mustPawl(t, db, "migrate", "down", "--to", "0", "--yes"); r.stdout != "schema version 0 (1 removed now)\n" {
		t.Errorf("down: %+v", r)
	}
	if n := one[int](t, db, "select count(*) from pg_namespace as n where n.nspname like 'pawl%'"); n != 0 {
		t.Errorf("%d schemas left", n)
	}
}

func TestMigrateStatus_JSON(t *testing.T) {
	t.Parallel()
	var s struct {
		Installed, Newest int
		AppliedAt         *string `json:"applied_at"`
		OK                bool
		Problem           string
		Versions          []struct {
			Number  int
			Applied bool
		}
	}
	read := func(db string) {
		t.Helper()
		r := mustPawl(t, db, "migrate", "status", "--json")
		if err := json.Unmarshal([]byte(r.stdout), &s); err != nil {
			t.Fatalf("%v: %q", err, r.stdout)
		}
	}
	read(pawltest.URL(t))
	if s.Installed != schema.Newest() || !s.OK || s.AppliedAt == nil || len(s.Versions) != len(schema.Versions()) || !s.Versions[0].Applied {
		t.Errorf("%+v", s)
	}
	read(empty(t))
	if s.Installed != 0 || s.OK || s.AppliedAt != nil || !strings.Contains(s.Problem, "not installed") || s.Versions[0].Applied {
		t.Errorf("%+v", s)
	}
}

// Every verb distinguishes a schema newer than the build from a missing one.
func TestMigrate_NewerSchema(t *testing.T) {
	t.Parallel()
	db := pawltest.URL(t, "insert into pawl.migration values (999, 'later', 998, 'x')")
	wantFailure(t, pawl(t, db, "migrate", "check"), 1, "needs clients of version 998", "deploy a newer build")
	wantFailure(t, pawl(t, db, "migrate", "up"), 1, "version 999", "needs clients of version 998", "deploy a newer build")
	asked, forced := pawl(t, db, "migrate", "down", "--to", "0"), pawl(t, db, "migrate", "down", "--to", "0", "--yes")
	wantFailure(t, asked, 1, "version 999, and this build can remove versions up to 1 only", "run it with the newer build")
	if asked != forced {
		t.Errorf("without --yes: %q, with it: %q", asked.stderr, forced.stderr)
	}
	if r := mustPawl(t, db, "migrate", "status"); !strings.Contains(r.stdout, "0999     (unknown to this build)  applied") {
		t.Errorf("status: %q", r.stdout)
	}
	if n := one[int](t, db, "select count(*) from pawl.inbox"); n != 0 {
		t.Errorf("inbox: %d", n)
	}
}

// An old replica that starts with `pawl migrate up` in a rolling deploy continues if the newer
// schema still serves it.
func TestMigrateUp_NewerSchemaThatStillServes(t *testing.T) {
	t.Parallel()
	db := pawltest.URL(t, "insert into pawl.migration values (999, 'later', 1, 'x')")
	said := fmt.Sprintf("the schema is newer (999 > %d) and still serves this build; nothing to do\n", schema.Newest())
	if r := mustPawl(t, db, "migrate", "up"); r.stdout != said || r.stderr != "" {
		t.Errorf("up: %q, %q", r.stdout, r.stderr)
	}
	if r := mustPawl(t, db, "migrate", "up", "--roles"); r.stdout != said || !strings.Contains(r.stderr, "not granting the roles") {
		t.Errorf("up --roles: %q, %q", r.stdout, r.stderr)
	}
}

// The check of an older build names both versions, and not its own for the schema's.
func TestMigrateCheck_NewerSchemaThatStillServes(t *testing.T) {
	t.Parallel()
	db := pawltest.URL(t, "insert into pawl.migration values (999, 'later', 1, 'x')")
	said := fmt.Sprintf("ok: the database fits this build (schema version 999, build for version %d)\n", schema.Newest())
	if r := mustPawl(t, db, "migrate", "check"); r.stdout != said {
		t.Errorf("check: %q", r.stdout)
	}
	if r := mustPawl(t, db, "migrate", "status"); !strings.HasSuffix(r.stdout, "\n"+said) {
		t.Errorf("status: %q", r.stdout)
	}
}

// Without --yes nothing is deleted, and the data to be lost is listed.
func TestMigrateDown_WithoutYes(t *testing.T) {
	t.Parallel()
	db := pawltest.URL(t, "select pawl_v1.job_enqueue('q', 'k', 'a', '{}') from generate_series(1, 3)")
	wantFailure(t, pawl(t, db, "migrate", "down", "--to", "0"), 2,
		"this would remove 0001_init and its data", "archive_7 0", "inbox 0, job 3, job_key 0, lane 0, queue 0, recall 0, replay 0, rollup 0, schedule 0, sequence_gate 0, sequence_gate_held 0, stale_write 0, step 0, step_call 0, worker 0 rows", "--yes")
	if n := one[int](t, db, "select count(*) from pawl.job"); n != 3 {
		t.Errorf("%d jobs left, want 3", n)
	}
	wantFailure(t, pawl(t, db, "migrate", "down", "--to", "7"), 2, "between 0 and the installed version 1")
}

// The database's own hint is to drop with CASCADE. Pawl's error names the objects that depend on
// the table.
func TestMigrateDown_NamesWhatDependsOnIt(t *testing.T) {
	t.Parallel()
	db := pawltest.URL(t, "create view public.mine as select id from pawl.job")
	wantFailure(t, afterProgress(t, pawl(t, db, "migrate", "down", "--to", "0", "--yes")), 1, "view public.mine depends on table pawl.job", "drop what depends on")
}

// A standby refuses every write. A schema without its version record is not installed again.
func TestMigrateUp_RefusedByTheDatabase(t *testing.T) {
	t.Parallel()
	readOnly := at(t, empty(t), func(_ *url.URL, q url.Values) { q.Set("default_transaction_read_only", "on") })
	wantFailure(t, afterProgress(t, pawl(t, readOnly, "migrate", "up")), 1, "read-only transaction", "connect to the primary")

	orphaned := pawltest.URL(t, "delete from pawl.migration")
	wantFailure(t, afterProgress(t, pawl(t, orphaned, "migrate", "up")), 1, "already exists, but pawl.migration has no record", "from a backup")
}

// Waiting for another migrator is reported, and Ctrl-C ends it.
func TestMigrateUp_Interrupted(t *testing.T) {
	t.Parallel()
	db := empty(t)
	other := connect(t, db)
	if _, err := other.Exec(t.Context(), "select pg_advisory_lock(1885435756, 2)"); err != nil {
		t.Fatal(err)
	}
	cmd := command(t, db, "migrate", "up")
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(stderr)
	if first, err := lines.ReadString('\n'); first != "another migration is running; waiting for it\n" {
		t.Errorf("%q, %v", first, err)
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	rest, _ := io.ReadAll(lines)
	_ = cmd.Wait()
	wantFailure(t, result{cmd.ProcessState.ExitCode(), "", string(rest)}, 1, "interrupted", "run it again")
}

func TestMigrateUp_Roles(t *testing.T) {
	t.Parallel()
	db := strict(t) // roles belong to the whole server, so not to the shared one
	mustPawl(t, db, "migrate", "up", "--roles")
	mustPawl(t, db, "migrate", "up", "--roles")
	if !one[bool](t, db, "select has_table_privilege('pawl_app', 'pawl.job', 'update')") {
		t.Error("pawl_app may not work on the jobs")
	}
}

// Several deploys may create and grant the roles at once, in two databases of a server and in one.
// In one, concurrent GRANTs on a table fail and are retried.
func TestMigrateUp_RolesOfTwoAtOnce(t *testing.T) {
	t.Parallel()
	const rounds = 12
	first := strict(t)
	exec1(t, first, "create database other")
	second := strings.Replace(first, "/postgres?", "/other?", 1)
	if second == first {
		t.Fatal("no second database in", first)
	}
	deploys := []string{first, second, first, second}
	results := make([]result, len(deploys))
	for range rounds {
		var running sync.WaitGroup
		for i, db := range deploys {
			running.Go(func() { results[i] = pawl(t, db, "migrate", "up", "--roles") })
		}
		running.Wait()
		for i, r := range results {
			if r.code != 0 {
				t.Fatalf("deploy %d: exit %d: %s", i, r.code, r.stderr)
			}
		}
	}
}

// The output is what the library renders. Several files on stdout are separated.
func TestMigratePrint_Stdout(t *testing.T) {
	t.Parallel()
	for _, format := range migrate.Formats() {
		files, err := migrate.Files(format, 0, migrate.Numbering{})
		if err != nil {
			t.Fatal(err)
		}
		var want string
		for _, file := range files {
			if len(files) > 1 {
				want += "-- file: " + file.Name + "\n"
			}
			want += file.Text
		}
		if r := mustPawl(t, "", "migrate", "print", "--format", string(format)); r.stdout != want || r.stderr != "" {
			t.Errorf("%s: printed %d bytes, want %d", format, len(r.stdout), len(want))
		}
	}
	// The script sets search_path for its transaction only, and psql commits after each statement.
	if r := mustPawl(t, "", "migrate", "print", "--roles"); r.stdout != "begin;\n\n"+schema.Roles()+"\ncommit;\n" {
		t.Error("print --roles is not roles.sql in one transaction")
	}
}

// Files are written all or not at all, and no existing file is overwritten without --force.
func TestMigratePrint_Dir(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "db", "migrations")
	up := filepath.Join(dir, "000001_pawl_init.up.sql")
	down := filepath.Join(dir, "000001_pawl_init.down.sql")
	print := []string{"migrate", "print", "--format", "golang-migrate", "--dir", dir}
	if r := mustPawl(t, "", print...); r.stdout != up+"\n"+down+"\n" {
		t.Errorf("wrote %q", r.stdout)
	}
	if err := os.WriteFile(down, []byte("mine"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(up); err != nil {
		t.Fatal(err)
	}
	wantFailure(t, pawl(t, "", print...), 1, down+" exists", "--force")
	if _, err := os.Stat(up); err == nil {
		t.Error("half of the set was written")
	}
	mustPawl(t, "", append(print, "--force")...)
	if text, _ := os.ReadFile(down); string(text) == "mine" {
		t.Error("--force did not overwrite")
	}
	wantFailure(t, pawl(t, "", append(print[:5:5], filepath.Join(up, "sub"))...), 1, "not a directory", "choose another --dir")
}

// Files can be numbered to fit among the user's own migrations; their content is the same.
func TestMigratePrint_Numbers(t *testing.T) {
	t.Parallel()
	for format, want := range map[migrate.Format][]string{
		migrate.Goose: {"00042_pawl_init.sql"}, migrate.Tern: {"042_pawl_init.sql"},
		migrate.GolangMigrate: {"000042_pawl_init.up.sql", "000042_pawl_init.down.sql"},
	} {
		plain, err := migrate.Files(format, 0, migrate.Numbering{})
		if err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		mustPawl(t, "", "migrate", "print", "--format", string(format), "--start", "42", "--dir", dir)
		for i, name := range want {
			if text, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(text) != plain[i].Text {
				t.Errorf("%s: %s is not the file %s under another name: %v", format, name, plain[i].Name, err)
			}
		}
		if format == migrate.Tern {
			continue
		}
		before := time.Now().UTC().Add(-time.Second).Format("20060102150405")
		times := strings.Fields(mustPawl(t, "", "migrate", "print", "--format", string(format), "--timestamps", "--dir", t.TempDir()).stdout)
		after := time.Now().UTC().Add(time.Minute).Format("20060102150405")
		for i, path := range times {
			number, rest, _ := strings.Cut(filepath.Base(path), "_")
			if _, name, _ := strings.Cut(plain[i].Name, "_"); rest != name || len(number) != len(before) || number < before || number > after {
				t.Errorf("%s: %s, not between %s and %s", format, path, before, after)
			}
		}
		if len(times) != len(plain) {
			t.Errorf("%s: wrote %v", format, times)
		}
	}
}

// The plain script installs a schema that passes the check.
func TestMigratePrint_PlainInstalls(t *testing.T) {
	t.Parallel()
	db := empty(t)
	exec1(t, db, mustPawl(t, "", "migrate", "print").stdout)
	mustPawl(t, db, "migrate", "check")
}
