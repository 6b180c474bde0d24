package pgtest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/internal/testbed/patience"
	"github.com/pawl-go/pawl/internal/testbed/postgres"
)

// applications counts how often each template was applied, by name.
var applications sync.Map

// counted is the template of most tests here. Its name is new in every run and the same in child
// processes.
var counted = counting("counted_" + cmp.Or(os.Getenv("PGTEST_CHILD"), run))

func counting(name string) Template {
	n := new(atomic.Int64)
	applications.Store(name, n)
	return Template{Name: name, Apply: func(ctx context.Context, conn *pgx.Conn) error {
		n.Add(1)
		_, err := conn.Exec(ctx, "create table t (id int primary key)")
		return err
	}}
}

func applied(tpl Template) int64 {
	n, _ := applications.Load(tpl.Name)
	return n.(*atomic.Int64).Load()
}

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func one[T any](t *testing.T, conn *pgx.Conn, sql string, args ...any) (v T) {
	t.Helper()
	if err := conn.QueryRow(context.Background(), sql, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return v
}

func exec1(t *testing.T, conn *pgx.Conn, sql string) {
	t.Helper()
	if _, err := conn.Exec(context.Background(), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	patience.Until(t, what, ok)
}

func databaseExists(t *testing.T, conn *pgx.Conn, database string) bool {
	return one[bool](t, conn, "select exists (select from pg_catalog.pg_database as d where d.datname = $1)", database)
}

func nameIn(t *testing.T, address string) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimPrefix(u.Path, "/")
}

// Two databases of one template share nothing, even within a test.
func TestURL_GivesEachCallItsOwnDatabase(t *testing.T) {
	t.Parallel()
	a, b := connect(t, URL(t, counted)), connect(t, URL(t, counted))
	exec1(t, a, "insert into t values (1)")
	if n := one[int](t, b, "select count(*) from t"); n != 0 {
		t.Errorf("the other database sees %d rows", n)
	}
}

// Twenty parallel tests apply the template once and get twenty databases.
func TestURL_AppliesTheTemplateOnceForTwentyAtOnce(t *testing.T) {
	t.Parallel()
	var wg sync.WaitGroup
	var names sync.Map
	for range 20 {
		wg.Go(func() {
			conn := connect(t, URL(t, counted))
			exec1(t, conn, "insert into t values (1)")
			names.Store(one[string](t, conn, "select current_database()"), true)
		})
	}
	wg.Wait()
	n := 0
	names.Range(func(any, any) bool { n++; return true })
	if n != 20 || applied(counted) != 1 {
		t.Errorf("%d databases, template applied %d times", n, applied(counted))
	}
}

// A passed test leaves no database.
func TestURL_DropsTheDatabaseOfAPassedTest(t *testing.T) {
	t.Parallel()
	var name string
	t.Run("passes", func(t *testing.T) {
		address := URL(t, counted)
		connect(t, address)
		name = nameIn(t, address)
	})
	admin := connect(t, ServerURL(t))
	eventually(t, "database dropped", func() bool { return !databaseExists(t, admin, name) })
}

// A connection that a test left open delays the drop but does not prevent it, and no test waits for
// the drop.
func TestURL_DropsInSpiteOfAForgottenConnection(t *testing.T) {
	t.Parallel()
	var name string
	var forgotten *pgx.Conn
	t.Run("forgets", func(t *testing.T) {
		address := URL(t, counted)
		name = nameIn(t, address)
		var err error
		if forgotten, err = pgx.Connect(context.Background(), address); err != nil {
			t.Fatal(err)
		}
	})
	defer forgotten.Close(context.Background())
	admin := connect(t, ServerURL(t))
	eventually(t, "database dropped", func() bool { return !databaseExists(t, admin, name) })
}

// A failed template is reported in every test that needs it, in one line with its name.
func TestTemplate_FailureIsReported(t *testing.T) {
	t.Parallel()
	s, err := server()
	if err != nil {
		t.Fatal(err)
	}
	broken := Template{Name: "broken", Apply: func(context.Context, *pgx.Conn) error { return errors.New("no such column") }}
	for range 2 {
		if _, err := s.template(t.Context(), broken); err == nil || !strings.Contains(err.Error(), "template broken: no such column") {
			t.Errorf("got %v", err)
		}
	}
	if admin := connect(t, ServerURL(t)); databaseExists(t, admin, "pawl_template_broken") {
		t.Error("left its half-made template behind")
	}
	if _, err := s.template(t.Context(), Template{Name: "Not A Name"}); err == nil {
		t.Error("accepted a name that cannot be part of a database name")
	}
}

// A template that a dead process left incomplete is built again.
func TestTemplate_HalfMadeIsMadeAgain(t *testing.T) {
	t.Parallel()
	admin := connect(t, ServerURL(t))
	half := counting(fmt.Sprintf("half_%s_%d", run, sequence.Add(1)))
	exec1(t, admin, "create database pawl_template_"+half.Name)
	if n := one[int](t, connect(t, URL(t, half)), "select count(*) from t"); n != 0 {
		t.Errorf("%d rows", n)
	}
}

// With the override, processes share the named server and its template, and clean up.
func TestOverride_SharesOneServerBetweenProcesses(t *testing.T) {
	t.Parallel()
	if os.Getenv("PGTEST_CHILD") != "" {
		conn := connect(t, URL(t, counted))
		fmt.Printf("applied=%d on=%s\n", applied(counted), one[string](t, conn, "show unix_socket_directories"))
		return
	}
	shared := startShared(t)
	outs := make(chan string, 4)
	for range cap(outs) {
		go func() {
			out, _ := rerun(t, "TestOverride_SharesOneServerBetweenProcesses", shared.URL("postgres")).CombinedOutput()
			outs <- string(out)
		}()
	}
	total := 0
	for range cap(outs) {
		out := <-outs
		if !strings.Contains(out, "on="+shared.Dir()) || !strings.Contains(out, "PASS") {
			t.Errorf("child said %s", out)
		}
		if strings.Contains(out, "applied=1") {
			total++
		}
	}
	if total != 1 {
		t.Errorf("the template was applied %d times by four processes", total)
	}
	admin := connect(t, shared.URL("postgres"))
	if left := one[string](t, admin, "select coalesce(string_agg(d.datname, ' '), '') from pg_catalog.pg_database as d where d.datname like 'pawl_test_%'"); left != "" {
		t.Errorf("left behind: %s", left)
	}
}

// A failed test keeps its database and logs its URL.
func TestOverride_KeepsTheDatabaseOfAFailedTest(t *testing.T) {
	t.Parallel()
	if os.Getenv("PGTEST_CHILD") != "" {
		exec1(t, connect(t, URL(t, counted)), "insert into t values (7)")
		t.Fatal("on purpose")
	}
	shared := startShared(t)
	out, err := rerun(t, "TestOverride_KeepsTheDatabaseOfAFailedTest", shared.URL("postgres")).CombinedOutput()
	kept := regexp.MustCompile(`postgres://\S+`).FindString(string(out))
	if err == nil || kept == "" {
		t.Fatalf("child: %v, %s", err, out)
	}
	if n := one[int](t, connect(t, kept), "select id from t"); n != 7 {
		t.Errorf("found %d", n)
	}
}

// An unsuitable server fails the test with one line that contains the next step. The test is not
// skipped.
func TestOverride_ExplainsAnUnsuitableServer(t *testing.T) {
	t.Parallel()
	if os.Getenv("PGTEST_CHILD") != "" {
		URL(t, counted)
		return
	}
	shared := startShared(t)
	exec1(t, connect(t, shared.URL("postgres")), "create role meek login")
	withPassword(t, shared)
	meek := strings.Replace(shared.URL("postgres"), "postgres@", "meek@", 1)
	wrong := strings.Replace(shared.URL("postgres"), "postgres@", "locked:guess@", 1)
	for name, c := range map[string]struct{ url, want string }{
		"not a URL":      {"host=/tmp", "write postgres://"},
		"bad URL":        {"postgres://u@h:port/d", "write postgres://"},
		"unreachable":    {"postgres://u:secret@127.0.0.1:1/d", "start that server"},
		"wrong password": {wrong, "correct the user and password"},
		"meek role":      {meek, "may not create databases"},
	} {
		out, err := rerun(t, "TestOverride_ExplainsAnUnsuitableServer", c.url).CombinedOutput()
		lines := regexp.MustCompile(`(?m)^.*`+override+`.*$`).FindAllString(string(out), -1)
		if err == nil || len(lines) != 1 || !strings.Contains(lines[0], c.want) || strings.Contains(string(out), "secret") {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}

// Without PostgreSQL the test fails with the next step and is not skipped.
func TestURL_FailsWithoutPostgreSQL(t *testing.T) {
	t.Parallel()
	if os.Getenv("PGTEST_CHILD") != "" {
		URL(t, counted)
		return
	}
	out, err := rerun(t, "TestURL_FailsWithoutPostgreSQL", "", "PAWL_PG_BIN=/nowhere").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "--- FAIL") || !strings.Contains(string(out), "needs PostgreSQL") || !strings.Contains(string(out), "PAWL_PG_BIN must name") {
		t.Errorf("%v\n%s", err, out)
	}
}

// startShared starts a server in place of a developer's own.
func startShared(t *testing.T) *postgres.Server {
	t.Helper()
	s, err := postgres.Start(t.Context(), postgres.Options{RAM: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Stop() })
	return s
}

// withPassword adds a role that needs a password.
func withPassword(t *testing.T, s *postgres.Server) {
	t.Helper()
	admin := connect(t, s.URL("postgres"))
	exec1(t, admin, "create role locked login password 'right'")
	hba := one[string](t, admin, "show hba_file")
	text, err := os.ReadFile(hba)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(hba, append([]byte("local all locked scram-sha-256\n"), text...), 0o600); err != nil {
		t.Fatal(err)
	}
	exec1(t, admin, "select pg_reload_conf()")
	// A backend that was forked before the postmaster read the file still uses trust.
	locked := strings.Replace(s.URL("postgres"), "postgres@", "locked@", 1)
	eventually(t, "password asked", func() bool {
		conn, err := pgx.Connect(t.Context(), locked)
		if err == nil {
			_ = conn.Close(t.Context())
		}
		return err != nil
	})
}

// rerun returns a command that runs one test of this binary in another process.
func rerun(t *testing.T, test, database string, env ...string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^"+test+"$", "-test.v")
	cmd.Env = append(append(os.Environ(), env...), "PGTEST_CHILD="+run, override+"="+database)
	return cmd
}
