//go:build proof

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/pawltest"
)

// In the user's database a demo works and leaves everything as it was, earlier rows included.
func TestDemo_DatabaseURL_LeavesNoTrace(t *testing.T) {
	t.Parallel()
	url := pawltest.URL(t)
	exec1(t, url, `
		select pawl_v1.worker_register('somebody else''s', '1 hour');
		select pawl_v1.job_enqueue('theirs', 'k', 'a', '{}')`)
	d := newDemo(t, "--database-url", url, "--messages", "200", "--kills", "4", "--poison", "2", "--seed", "14", "--json")
	r := mustReport(t, d.run())
	r.wantKept(t, 200, 2)
	if strings.Contains(d.stderr.String(), "could not remove") || r.Schema != "" {
		t.Errorf("schema %q; %s", r.Schema, d.stderr.String())
	}
	if n := one[int](t, url, traces); n != 2 {
		t.Errorf("%d rows and schemas, want the 2 that were there before", n)
	}
	d.wantNothingLeft()
}

func TestDemo_DatabaseURL_PaymentsLeaveNoTrace(t *testing.T) {
	t.Parallel()
	url := pawltest.URL(t)
	d := newDemo(t, "--payments", "--database-url", url, "--messages", "40", "--kills", "1", "--seed", "24", "--json")
	mustReport(t, d.run()).wantKept(t, 40, 0)
	if n := one[int](t, url, traces); n != 0 {
		t.Errorf("%d rows and schemas left: %s", n, d.stderr.String())
	}
	d.wantNothingLeft()
}

func TestDemo_DatabaseURL_LeaseLeavesNoTrace(t *testing.T) {
	t.Parallel()
	url := pawltest.URL(t)
	d := newDemo(t, "--lease", "--database-url", url, "--json")
	if r := d.run(); r.code != 0 || !strings.HasPrefix(r.stdout, `{"letters":2,"mails":2,"rows":2,"lost":0,"doubled":0,"refused":`) {
		t.Errorf("exit %d\n%s%s", r.code, r.stdout, r.stderr)
	}
	if n := one[int](t, url, traces); n != 0 {
		t.Errorf("%d rows and schemas left: %s", n, d.stderr.String())
	}
	d.wantNothingLeft()
}

func TestDemo_DatabaseURL_InterruptedLeavesNoTrace(t *testing.T) {
	t.Parallel()
	url := pawltest.URL(t)
	d := startDemo(t, "--database-url", url, "--messages", "50000", "--kills", "3")
	if one[int](t, url, traces) == 0 {
		t.Fatal("the demo is not in this database")
	}
	wantFailure(t, d.end(os.Interrupt), 1, "demo: interrupted")
	if n := one[int](t, url, traces); n != 0 {
		t.Errorf("%d rows and schemas left: %s", n, d.stderr.String())
	}
	d.wantNothingLeft()
}

//   - -keep keeps the rows and prints where, without the URL, because it may hold a password. A
//     second run of the same seed in the same database does not use the first one's inbox.
func TestDemo_DatabaseURL_Keep(t *testing.T) {
	t.Parallel()
	url := pawltest.URL(t)
	schemas := map[string]bool{}
	for range 2 {
		r := mustReport(t, newDemo(t, "--database-url", url, "--messages", "50", "--kills", "0", "--seed", "15", "--keep", "--json").run())
		r.wantKept(t, 50, 0)
		schemas[r.Schema] = true
		in := pgx.Identifier{r.Schema}.Sanitize()
		if n := one[int](t, url, "select count(*) from "+in+".orders"); n != 50 || r.Directory != "" {
			t.Errorf("%d orders, directory %q", n, r.Directory)
		}
		if n := one[int](t, url, fmt.Sprintf("select count(*) from pawl.inbox as i where i.consumer = '%s'", r.Schema)); n != 50 {
			t.Errorf("%d inbox rows", n)
		}
	}
	if len(schemas) != 2 {
		t.Errorf("both runs used %v", schemas)
	}
}

// - -keep on a private server: the printed command starts on that data, with the orders in it.
func TestDemo_KeepOnAPrivateServer(t *testing.T) {
	t.Parallel()
	d := newDemo(t, "--messages", "50", "--kills", "1", "--keep")
	r := d.run()
	if r.code != 0 {
		t.Fatalf("exit %d\n%s%s", r.code, r.stdout, r.stderr)
	}
	after := func(label string) string {
		_, rest, _ := strings.Cut(r.stdout, label)
		word, _, _ := strings.Cut(strings.TrimSpace(rest), "\n")
		word, _, _ = strings.Cut(word, ",")
		return word
	}
	dir, schema := after("look: pawl dev postgres --dir "), after("kept: schema ")
	if !strings.HasPrefix(dir, d.dir) || !strings.HasPrefix(schema, "pawl_demo_") {
		t.Fatalf("directory %q, schema %q in\n%s", dir, schema, r.stdout)
	}
	s := startDev(t, dir)
	if n := one[int](t, s.URL, "select count(*) from "+schema+".orders"); n != 50 {
		t.Errorf("%d orders, want 50", n)
	}
	if left, _ := filepath.Glob(filepath.Join(d.dir, "pawl-pg-*")); len(left) != 0 && !strings.Contains(s.URL, filepath.Base(left[0])) {
		t.Errorf("left beside the data: %v", left)
	}
}
