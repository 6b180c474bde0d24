// Package twice tests the script that runs a worker twice at once and kills it.
package twice_test

import (
	"bytes"
	"os/exec"
	"strings"
	"testing"

	"github.com/pawl-go/pawl/pawltest"
)

const (
	tables = `create table orders (id bigint primary key, status text not null, claimed_at timestamptz);
create table shipments (order_id bigint not null);`
	setup = "truncate orders, shipments; insert into orders values (17, 'pending')"
	check = "select count(*) from shipments where order_id = 17"
	// ask and do run SQL in psql, as a worker in a shell script.
	functions = `ask() { psql -XqAt -v ON_ERROR_STOP=1 "$DATABASE_URL" -c "$1"; }; `
	finish    = `update orders set status = 'done' where id = 17 and status in ('pending', 'processing')`
	ship      = `insert into shipments values (17)`
)

// twice runs the script on a worker in sh, and returns its exit status and what it printed.
func twice(t *testing.T, worker string, options ...string) (status int, said string) {
	t.Helper()
	for _, tool := range []string{"python3", "psql"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("did not run: there is no %s on the PATH", tool)
		}
	}
	arguments := []string{"twice.py", "--database", pawltest.URL(t, tables)}
	arguments = append(append(arguments, options...), "--", "sh", "-c", functions+worker)
	c := exec.Command("python3", arguments...)
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	err := c.Run()
	if c.ProcessState == nil {
		t.Fatal(err)
	}
	return c.ProcessState.ExitCode(), out.String()
}

var usual = []string{"--table", "orders", "--table", "shipments", "--setup", setup, "--check", check}

func TestTwice_Workers(t *testing.T) {
	t.Parallel()
	const ok, fail = "ok   ", "FAIL "
	for name, c := range map[string]struct {
		worker  string
		options []string
		want    []string // lines, in order
	}{
		"one statement": {`ask "with mine as (` + finish + ` returning id) insert into shipments select id from mine"`, nil,
			[]string{ok + "twice at once", ok + "killed before it writes to orders, and run again", ok + "killed before it writes to shipments, and run again"}},
		"a lease": {`n=$(ask "update orders set status = 'processing', claimed_at = now() where id = 17 and (status = 'pending'` +
			` or status = 'processing' and claimed_at < now() - interval '1 hour') returning id"); [ "$n" ] || exit 0; ask "begin; ` + finish + `; ` + ship + `; commit"`,
			[]string{"--recover", "update orders set claimed_at = now() - interval '1 day'"},
			[]string{ok + "twice at once", ok + "killed before it writes to orders", ok + "killed before it writes to shipments"}},
		"select, then act": {`n=$(ask "select id from orders where id = 17 and status = 'pending'"); [ "$n" ] || exit 0; ask "begin; ` + ship + `; ` + finish + `; commit"`, nil,
			[]string{fail + "twice at once: doubled: the effect is there 2 times", ok + "killed before it writes to orders", ok + "killed before it writes to shipments"}},
		"mark first": {`n=$(ask "` + finish + ` returning id"); [ "$n" ] || exit 0; ask "` + ship + `"`, nil,
			[]string{ok + "twice at once", ok + "killed before it writes to orders", fail + "killed before it writes to shipments, and run again: lost: the effect is not there"}},
		"work first": {`n=$(ask "begin; select id from orders where id = 17 and status = 'pending' for update; commit"); [ "$n" ] || exit 0; ask "` + ship + `"; ask "` + finish + `"`, nil,
			[]string{fail + "twice at once: doubled", fail + "killed before it writes to orders, and run again: doubled: the effect is there 2 times", ok + "killed before it writes to shipments"}},
		"a lock, but no check": {`ask "begin; select pg_advisory_xact_lock(17); ` + ship + `; ` + finish + `; commit"`, []string{"--check", "select count(*) = 1 from shipments"},
			[]string{fail + "twice at once: the check is false", ok + "killed before it writes to orders", ok + "killed before it writes to shipments"}},
		"no memory": {`ask "` + ship + `"`, []string{"--table", "shipments"}, []string{fail + "twice at once"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			options := append([]string{}, usual...)
			if len(c.options) == 2 && c.options[0] == "--table" {
				options = []string{"--setup", setup, "--check", check}
			}
			status, said := twice(t, c.worker, append(options, c.options...)...)
			want := 0
			rest := said
			for _, line := range c.want {
				if strings.HasPrefix(line, fail) {
					want = 1
				}
				_, after, found := strings.Cut(rest, line)
				if !found {
					t.Errorf("did not say %q", line)
				}
				rest = after
			}
			if status != want {
				t.Errorf("ended with %d, want %d", status, want)
			}
			t.Logf("%s", said)
		})
	}
}

// Each error ends with the next step.
func TestTwice_Refusals(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		worker  string
		options []string
		want    string
	}{
		"no such table":    {"true", []string{"--table", "nowhere", "--setup", setup, "--check", check}, "Give --table the names of tables that exist."},
		"setup fails":      {"true", []string{"--table", "orders", "--setup", "insert into nowhere values (1)", "--check", check}, "--setup failed"},
		"does not work":    {"echo it has no configuration >&2; exit 1", usual, "never wanted to write to orders, shipments, and said: it has no configuration"},
		"does not end":     {"sleep 1000", append([]string{"--seconds", "2"}, usual...), "still ran after 2 s\nLet it exit"},
		"check says words": {`ask "` + ship + `"`, []string{"--table", "shipments", "--setup", setup, "--check", "select 'many'"}, "--check returned 'many'"},
		"check is missing": {"true", []string{"--table", "orders", "--setup", setup}, "the following arguments are required: --check"},
		"help":             {"true", []string{"--help"}, "Part 2, killed in the middle"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			status, said := twice(t, c.worker, c.options...)
			want := 2
			if name == "help" {
				want = 0
			}
			if status != want || !strings.Contains(said, c.want) {
				t.Errorf("ended with %d: %s", status, said)
			}
		})
	}
}
