package command_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/testbed/patience"
	"github.com/pawl-go/pawl/pawltest"
)

// codeOf returns the code of one language on a guide's page, in order.
func codeOf(t *testing.T, page, language string) string {
	t.Helper()
	return strings.Join(blocksOf(t, page, language), "\n")
}

func blocksOf(t *testing.T, page, language string) (all []string) {
	t.Helper()
	text, err := os.ReadFile("../docs/guides/" + page)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```").FindAllStringSubmatch(string(text), -1) {
		all = append(all, m[1])
	}
	if len(all) < 2 {
		t.Fatalf("%s has %d blocks of %s", page, len(all), language)
	}
	return all
}

// guided returns a database in which the SQL of the guide was run, each block by itself: CALL must
// not be in a transaction.
func guided(t *testing.T) *bed {
	t.Helper()
	b := setupOn(t, pawltest.URL(t))
	for _, block := range blocksOf(t, "plpgsql.md", "sql") {
		_, err := b.pool.Exec(t.Context(), block, pgx.QueryExecModeSimpleProtocol)
		b.must(err)
	}
	return b
}

func (b *bed) ask(statement string) (answer string) {
	b.Helper()
	var pg *pgconn.PgError
	err := b.pool.QueryRow(b.Context(), statement).Scan(&answer)
	if errors.As(err, &pg) {
		return pg.Code
	}
	b.must(err)
	return answer
}

// The guide's create_order_once does what the guide says.
func TestGuide_PLpgSQL(t *testing.T) {
	t.Parallel()
	b := guided(t)
	const columns = "select concat_ws(' ', c.outcome, c.order_id, c.message) from "
	for _, c := range []struct{ call, want string }{
		{"create_order_once('acme', 'key-1', 'A-1', 'ann', 1250)", "replayed 1"},
		// Another key, the same order.
		{"create_order_once('acme', 'key-2', 'A-1', 'ann', 1250)", "replayed 1"},
		{"create_order_once('acme', 'key-1', 'A-1', 'ann', 1251)", "P4002"},
		{"create_order_once('acme', 'key-3', 'A-3', 'ann', -1)", "P4030"},
		{"create_order_once('acme', 'key-5', 'A-1', 'ann', 99)", "failed_final order A-1 exists and is another one"},
		{"create_order_once('acme', 'key-5', 'A-1', 'ann', 99)", "P4030"},
		// Another tenant; the attempts drew ids.
		{"create_order_once('other', 'key-1', 'A-1', 'ann', 1250)", "created 6"},
	} {
		got := b.ask(columns + c.call + " as c")
		if strings.HasPrefix(c.want, "created") {
			got, c.want = got[:7], "created"
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", c.call, got, c.want)
		}
	}
	b.wantOrders(2)
	b.want("select count(*) from order_audit", 2)
	b.want("select count(*) from pawl_v1.outbox_pending as p where p.event_type = 'OrderCreated'", 2)
	// Seven days after its end a command may be purged, and not before.
	b.want("select count(*) from pawl.command as c where c.scope like 'orders/%' and c.expires_at - c.updated_at not between '7 days' and '7 days 1 minute'", 0)

	// A failure at COMMIT, recorded afterwards.
	tx, err := b.pool.Begin(t.Context())
	b.must(err)
	var fence int64
	b.must(tx.QueryRow(t.Context(), "select c.fence from create_order_once('acme', 'key-4', 'A-4', 'nobody', 100) as c").Scan(&fence))
	if err := tx.Commit(t.Context()); pawl.CodeOf(err) != "23503" {
		t.Errorf("got %v", err)
	}
	b.want("select count(*) from pawl.command where key = 'key-4'", 0)
	var outcome string
	b.must(b.pool.QueryRow(t.Context(), "select create_order_failed('acme', 'key-4', 'A-4', 'nobody', 100, $1, '23503', 'no such customer')", fence).Scan(&outcome))
	if got := b.ask(columns + "create_order_once('acme', 'key-4', 'A-4', 'nobody', 100) as c"); outcome != "failed_final" || got != "P4030" {
		t.Errorf("%s, and then %s", outcome, got)
	}
}

// Two psql sessions use one key. The second gets P4029 at once, or waits and gets the answer.
func TestGuide_TwoSessions(t *testing.T) {
	t.Parallel()
	b := guided(t)
	tx, err := b.pool.Begin(t.Context())
	b.must(err)
	call := func(waitMS string) string {
		return "select concat_ws(' ', c.outcome, c.order_id) from create_order_once('acme', 'k', 'B-1', 'ann', 5, " + waitMS + ") as c"
	}
	var first string
	b.must(tx.QueryRow(t.Context(), call("0")).Scan(&first))
	if got := b.ask(call("0")); got != "P4029" {
		t.Errorf("told %s", got)
	}
	waited := make(chan string)
	go func() { waited <- b.ask(call("20000")) }()
	patience.Blocked(b, b.pool, 1, "%create_order_once%")
	b.must(tx.Commit(t.Context()))
	if got := <-waited; got != strings.Replace(first, "created", "replayed", 1) {
		t.Errorf("told %s", got)
	}
	b.want("select count(*) from orders where order_no = 'B-1'", 1)
}

// pgbench calls a thousand times, ten at a time: one order, one answer.
func TestGuide_Pgbench(t *testing.T) {
	t.Parallel()
	pgbench := tool(t, "pgbench")
	b := guided(t)
	script := filepath.Join(t.TempDir(), "once.sql")
	b.must(os.WriteFile(script, []byte("select 1 / (c.order_id = (select min(o.id) from orders as o where o.order_no = 'C-1'))::int"+
		" from create_order_once('acme', 'bench', 'C-1', 'ann', 5, 20000) as c;\n"), 0o600))
	out, err := exec.Command(pgbench, "-n", "-f", script, "-c", "10", "-j", "2", "-t", "100", "-d", b.url).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "transactions actually processed: 1000/1000") {
		t.Errorf("%v\n%s", err, out)
	}
	b.want("select count(*) from orders where order_no = 'C-1'", 1)
	b.want("select count(*) from pawl.command where key = 'bench' and attempts = 1", 1)
}

// tool finds a PostgreSQL program beside the server, or skips the test.
func tool(t *testing.T, name string) string {
	t.Helper()
	if found, err := exec.LookPath(name); err == nil {
		return found
	}
	if found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + name); len(found) > 0 {
		return found[len(found)-1]
	}
	t.Skipf("did not run: %s is neither on the PATH nor in /usr/lib/postgresql/*/bin", name)
	return ""
}

// python speaks the guide's Python, with psycopg or psycopg2 if one is installed. Else it goes
// through psql.
func python(t *testing.T) speaker {
	t.Helper()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("did not run: there is no python3 on the PATH")
	}
	tool(t, "psql")
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "guide.py"), []byte(codeOf(t, "python.md", "python")), 0o600); err != nil {
		t.Fatal(err)
	}
	program, err := filepath.Abs("testdata/guide_test.py")
	if err != nil {
		t.Fatal(err)
	}
	return speaker{
		command: func(arguments ...string) *exec.Cmd {
			c := exec.Command(python, append([]string{program}, arguments...)...)
			c.Env = append(os.Environ(), "PYTHONPATH="+dir)
			return c
		},
		driver: exec.Command(python, "-c", "import psycopg").Run() == nil,
	}
}

func TestGuide_PythonRecipes(t *testing.T) {
	t.Parallel()
	s := python(t)
	t.Logf("with psycopg: %v", s.driver)
	recipes(t, s)
}

func TestGuide_Python(t *testing.T) {
	t.Parallel()
	s, b := python(t), setup(t)
	run := func(what string) string {
		out, err := s.command(b.url, what).CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v\n%s", what, err, out)
		}
		return string(out)
	}
	t.Log(run("twice"))
	run("failures")
	var all sync.WaitGroup
	for range 6 {
		all.Go(func() { run("race") })
	}
	all.Wait()
	b.wantOrders(3)
	b.want("select count(*) from orders where body = 'race'", 1)
	t.Log(run("jobs"))
	t.Log(run("queue"))
	b.wantOrders(6)
}

// node speaks the guide's JavaScript. It checks its syntax, and skips the test unless the package
// pg is installed.
func node(t *testing.T) speaker {
	t.Helper()
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("did not run: there is no node on the PATH")
	}
	tests, err := os.ReadFile("testdata/guide_test.js")
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(t.TempDir(), "guide.js")
	if err := os.WriteFile(program, []byte(codeOf(t, "node.md", "js")+string(tests)), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(node, "--check", program).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if out, err := exec.Command(node, "-e", "require('pg')").CombinedOutput(); err != nil {
		t.Skipf("its syntax is right; did not run: node has no package pg here (npm install pg, and NODE_PATH): %.200s", out)
	}
	return speaker{func(arguments ...string) *exec.Cmd {
		return exec.Command(node, append([]string{program}, arguments...)...)
	}, true}
}

func TestGuide_NodeRecipes(t *testing.T) {
	t.Parallel()
	recipes(t, node(t))
}

func TestGuide_Node(t *testing.T) {
	t.Parallel()
	s, b := node(t), setup(t)
	out, err := s.command(b.url, "all").CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
	b.wantOrders(4)
}
