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
	tables = `create table orders (id bigint primary key, status text not null, claimed_at timestamptz, label text);
create table shipments (order_id bigint not null);
create table leases (token text, until timestamptz);`
	setup = "truncate orders, shipments, leases; insert into orders values (17, 'pending'); insert into leases values ('', '-infinity')"
	check = "select count(*) from shipments where order_id = 17"
	// ask and do run SQL in psql, as a worker in a shell script.
	functions = `ask() { psql -XqAt -v ON_ERROR_STOP=1 "$DATABASE_URL" -c "$1"; }; `
	finish    = `update orders set status = 'done' where id = 17 and status in ('pending', 'processing')`
	done      = `update orders set status = 'done' where id = 17`
	ship      = `insert into shipments values (17)`
)

// lease returns a worker that claims the order, and then completes the work in one message. $n is
// the token of its claim.
func lease(complete string) string {
	return `n=$(ask "update orders set status = 'processing', claimed_at = clock_timestamp() where id = 17 and (status = 'pending'` +
		` or status = 'processing' and claimed_at < now() - interval '1 hour') returning claimed_at"); [ "$n" ] || exit 0; ask "` + complete + `"`
}

// beating is a worker with a heartbeat and no fence. Its lease is a row of leases.
const beating = `n=$(ask "with free as (select from leases where until < now() for update),` +
	` mine as (update orders set status = 'processing', claimed_at = clock_timestamp() where id = 17 and status in ('pending', 'processing')` +
	` and exists (select from free) returning claimed_at),` +
	` lease as (update leases set until = now() + interval '1 hour', token = mine.claimed_at::text from mine) select claimed_at from mine"); [ "$n" ] || exit 0; ` +
	`( while ask "update leases set until = now() + interval '1 hour' where token = '$n'"; do sleep 0.1; done ) & ask "begin; ` + done + `; ` + ship + `; commit"; kill $!`

// forEver has a run go on until it ends, so it must not wait for a paused one.
var forEver = []string{"--seconds", "100000"}

// moved moves the lease into the past.
var moved = []string{"--recover", "update orders set claimed_at = claimed_at - interval '1 day'"}

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
			[]string{ok + "twice at once", ok + "killed before it writes to orders, and run again", ok + "killed before it writes to shipments, and run again",
				ok + "paused before write 1, to shipments, while another takes over", ok + "paused before write 2, to orders"}},
		"a lease": {lease(`with mine as (` + done + ` and claimed_at = '$n' returning id) insert into shipments select id from mine`), moved,
			[]string{ok + "twice at once", ok + "killed before it writes to orders", ok + "killed before it writes to shipments",
				ok + "paused before write 1, to orders", ok + "paused before write 2, to shipments", ok + "paused before write 3, to orders"}},
		"a lease without a fence": {lease(`begin; ` + done + `; ` + ship + `; commit`), moved,
			[]string{ok + "twice at once", ok + "killed before it writes to orders", ok + "killed before it writes to shipments",
				ok + "paused before write 1, to orders", fail + "paused before write 2, to orders, while another takes over: doubled: the effect is there 2 times",
				ok + "paused before write 3, to shipments", "check the token of the claim"}},
		"a heartbeat stops too": {beating, []string{"--recover", "update leases set until = '-infinity'"},
			[]string{ok + "killed before it writes to shipments", fail + "paused before write 2, to orders, while another takes over: doubled"}},
		"a lease without a fence, overwritten": {lease(`update orders set status = 'done', label = gen_random_uuid() where id = 17`), append([]string{"--table", "orders", "--setup", setup,
			"--check", "select count(*) from orders where label is not null"}, moved...),
			[]string{ok + "twice at once", ok + "killed before it writes to orders", ok + "paused before write 1, to orders",
				fail + "paused before write 2, to orders, while another takes over: the paused worker changed a row after the other had completed the work"}},
		"a lease without a fence, ignored": {lease(`update orders set status = 'done', label = gen_random_uuid() where id = 17`), append([]string{"--table", "orders", "--setup", setup,
			"--check", "select count(*) from orders where label is not null", "--ignore", "label"}, moved...),
			[]string{ok + "paused before write 2, to orders"}},
		"a lease that is not moved": {lease(`with mine as (` + done + ` and claimed_at = '$n' returning id) insert into shipments select id from mine`), nil,
			[]string{ok + "twice at once", ok + "killed before it writes to orders",
				fail + "killed before it writes to shipments, and run again: if your worker has a lease, move it into the past with --recover: the second run changed nothing (lost: the effect is not there)",
				"If it has no lease: let one statement decide"}},
		"skip locked": {`ask "begin; create temp table mine as select id from orders where id = 17 and status = 'pending' for update skip locked;` +
			` insert into shipments select id from mine; update orders set status = 'done' where id in (select id from mine); commit"`, forEver,
			[]string{ok + "twice at once", ok + "paused before write 1, to shipments", ok + "paused before write 2, to orders"}},
		"an advisory lock": {`ask "begin; select pg_advisory_xact_lock(17); insert into shipments select id from orders where id = 17 and status = 'pending';` +
			` ` + done + `; commit"`, forEver,
			[]string{ok + "twice at once", ok + "paused before write 1, to shipments", ok + "paused before write 2, to orders"}},
		"select, then act": {`n=$(ask "select id from orders where id = 17 and status = 'pending'"); [ "$n" ] || exit 0; ask "begin; ` + ship + `; ` + finish + `; commit"`, nil,
			[]string{fail + "twice at once: doubled: the effect is there 2 times", ok + "killed before it writes to orders", ok + "killed before it writes to shipments"}},
		"mark first": {`n=$(ask "` + finish + ` returning id"); [ "$n" ] || exit 0; ask "` + ship + `"`, nil,
			[]string{ok + "twice at once", ok + "killed before it writes to orders", fail + "killed before it writes to shipments, and run again: if your worker has a lease"}},
		"work first": {`n=$(ask "begin; select id from orders where id = 17 and status = 'pending' for update; commit"); [ "$n" ] || exit 0; ask "` + ship + `"; ask "` + finish + `"`, nil,
			[]string{fail + "twice at once: doubled", fail + "killed before it writes to orders, and run again: doubled: the effect is there 2 times", ok + "killed before it writes to shipments"}},
		"a lock, but no check": {`ask "begin; select pg_advisory_xact_lock(17); ` + ship + `; ` + finish + `; commit"`, []string{"--check", "select count(*) = 1 from shipments"},
			[]string{fail + "twice at once: the check is false", ok + "killed before it writes to orders", ok + "killed before it writes to shipments"}},
		"no memory": {`ask "` + ship + `"`, []string{"--table", "shipments"}, []string{fail + "twice at once"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			options := append([]string{}, usual...)
			if len(c.options) > 0 && c.options[0] == "--table" {
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
