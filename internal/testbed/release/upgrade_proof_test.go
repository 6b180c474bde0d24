//go:build proof

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// A change is one to a file of the tree. An empty old text makes a new file.
type change struct{ file, old, new string }

// The next candidate adds to the contract what docs/operating/upgrade.md allows: columns with a
// default and a table, in two versions of the schema; a new function, which its library calls in
// place of an old one; and more in the detail of functions that every build calls.
var next = []change{
	{"schema/tables/0002_note.up.sql", "", `
alter table pawl.job add column note text not null default 'none';
create table pawl.noted (job_id bigint primary key);
`},
	{"schema/tables/0002_note.down.sql", "", "alter table pawl.job drop column note;\ndrop table pawl.noted;\n"},
	{"schema/tables/0003_note.up.sql", "", "alter table pawl.inbox add column note text not null default 'none';\n"},
	{"schema/tables/0003_note.down.sql", "", "alter table pawl.inbox drop column note;\n"},
	{"schema/api/21_enqueue_noted.sql", "", `
create or replace function pawl_v1.job_enqueue_noted(p_queue text, p_kind text, p_payload bytea, p_options jsonb default '{}')
returns table (outcome text, job_id bigint, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  select e.outcome, e.job_id, e.detail
    into outcome, job_id, detail
    from pawl_v1.job_enqueue(p_queue, p_kind, p_payload, p_options) as e;
  if outcome = 'enqueued' then
    update pawl.job as j
       set note = 'rc.2'
     where j.id = job_enqueue_noted.job_id;
    insert into pawl.noted (job_id)
    values (job_enqueue_noted.job_id);
  end if;
  return next;
end
$$;
`},
	{"internal/contract/job.go", " from pawl_v1.job_enqueue($1,", " from pawl_v1.job_enqueue_noted($1,"},
	{"schema/api/10_inbox.sql", "v_seen.received_at, v_seen.processed_at, '{}'::jsonb;", `v_seen.received_at, v_seen.processed_at, '{"note": "rc.2"}'::jsonb;`},
	{"schema/api/25_open.sql", "outcome := 'ended';\n  detail := '{}';", "outcome := 'ended';\n  detail := '{\"note\": \"rc.2\"}';"},
}

// changed returns a copy of the working tree with changes.
func changed(t *testing.T, changes ...change) *tree {
	t.Helper()
	c, err := working.copyTo(t.TempDir())
	must(t, err)
	for _, change := range changes {
		name := filepath.Join(c.root, change.file)
		if change.old == "" {
			must(t, os.WriteFile(name, []byte(change.new), 0o644))
			c.files = append(c.files, change.file)
			continue
		}
		text, err := os.ReadFile(name)
		must(t, err)
		if n := strings.Count(string(text), change.old); n != 1 {
			t.Fatalf("%s has %d times %q: the next candidate changes it, so choose other code for it here", change.file, n, change.old)
		}
		must(t, os.WriteFile(name, []byte(strings.Replace(string(text), change.old, change.new, 1)), 0o644))
	}
	return c
}

// A candidateBuild has pawl and a user's program, built from a release candidate.
type candidateBuild struct{ name, pawl, program string }

// builtFrom publishes a tree at a version in a proxy of its own, and builds what a user builds.
func builtFrom(t *testing.T, of *tree, version string) candidateBuild {
	t.Helper()
	r := publishedAt(t, of, version)
	r.env = append(r.env, "CGO_ENABLED=0")
	do(t, r, r.dir, "go", "install", pathOf("cmd/pawl")+"@"+version)
	dir := filepath.Join(r.dir, "user")
	must(t, copyFile("testdata/upgrade/main.go", filepath.Join(dir, "main.go")))
	do(t, r, dir, "go", "mod", "init", "example.com/upgrade")
	do(t, r, dir, "go", "get", core+"@"+version, pathOf("transport/pawlsqs")+"@"+version)
	do(t, r, dir, "go", "mod", "tidy")
	do(t, r, dir, "go", "build", "-o", "upgrade", ".")
	return candidateBuild{strings.TrimPrefix(version, "v0.1.0-"), filepath.Join(r.dir, "go/bin/pawl"), filepath.Join(dir, "upgrade")}
}

// Two builds upgrade and go back under load, and each order takes effect once.
func TestUpgrade_UnderLoadAndBack(t *testing.T) {
	if *released != "" {
		t.Skip("it is about the working tree")
	}
	program(t, "psql", "postgresql-client")
	rc1, rc2 := builtFrom(t, working, candidate), builtFrom(t, changed(t, next...), "v0.1.0-rc.2")
	u := &upgrade{t: t}
	u.judge(u.rehearse(rc1, rc2))
}

// rehearse upgrades and goes back, and returns the number of orders sent.
func (u *upgrade) rehearse(rc1, rc2 candidateBuild) (sent int) {
	t := u.t
	said := func(p *process, into any) {
		t.Helper()
		line, err := p.stdout.ReadBytes('\n')
		if err == nil {
			err = json.Unmarshal(line, into)
		}
		if err != nil {
			t.Fatalf("%v: %q\n%s", err, line, p.said())
		}
	}
	var server, queue struct{ URL string }
	said(u.start("", rc1.pawl, "dev", "postgres", "--dir", filepath.Join(t.TempDir(), "data"), "--json"), &server)
	said(u.start("", rc1.pawl, "dev", "sqs", "--listen", "127.0.0.1:0", "--queue", "orders", "--chaos", "45", "--json"), &queue)
	u.database, u.sqs = server.URL, queue.URL
	u.query("create table effect (kind text not null, id int not null, build text not null, process int not null, enqueued_by text)")
	worker := func(of candidateBuild) *process { return u.start(of.name, of.program, "work") }

	load := exec.Command(rc1.program, "load")
	load.Env, load.Stderr = append(os.Environ(), "SQS="+u.sqs), os.Stderr
	end, err := load.StdinPipe()
	must(t, err)
	out, err := load.StdoutPipe()
	must(t, err)
	must(t, load.Start())
	t.Cleanup(func() { _ = load.Process.Kill() })

	began := time.Now()
	phase := func(what string) {
		t.Logf("%4.0f s %6d effects: %s", time.Since(began).Seconds(), u.number("select count(*) from effect"), what)
	}
	phase("the old build alone")
	a, b := worker(rc1), worker(rc1)
	u.works(a, b)
	early := exec.Command(rc2.program, "work")
	early.Env = append(os.Environ(), "PAWL_DATABASE_URL="+u.database, "SQS="+u.sqs)
	if said, err := early.CombinedOutput(); err == nil || !strings.Contains(string(said), "pawl migrate up") {
		t.Errorf("the new build on the old schema ended with %v\n%s", err, said)
	}

	phase("migrate")
	u.kill(a)
	a = worker(rc1)
	migrate := exec.Command(rc2.pawl, "migrate", "up")
	migrate.Env = append(os.Environ(), "PAWL_DATABASE_URL="+u.database)
	if said, err := migrate.CombinedOutput(); err != nil {
		t.Fatalf("pawl migrate up: %v\n%s", err, said)
	}
	phase("the old build on the new schema")
	u.works(a, b)
	u.kill(b)
	b = worker(rc1)
	u.works(b)

	phase("both builds")
	c, d := worker(rc2), worker(rc2)
	u.works(a, b, c, d)
	u.kill(a)
	u.kill(c)
	a, c = worker(rc1), worker(rc2)
	u.works(a, b, c, d)

	phase("the new build alone")
	u.stop(a, b)
	u.works(c, d)
	u.kill(d)
	d = worker(rc2)
	u.works(c, d)

	phase("back: both builds")
	a, b = worker(rc1), worker(rc1)
	u.works(a, b, c, d)
	u.kill(c)
	u.kill(b)
	b = worker(rc1)
	u.stop(d)
	phase("the old build alone, on the new schema")
	u.works(a, b)

	must(t, end.Close())
	text, err := io.ReadAll(out)
	must(t, err)
	must(t, load.Wait())
	sent, err = strconv.Atoi(strings.TrimSpace(string(text)))
	must(t, err)
	phase("the queue is empty")
	u.until("no job is left", func() bool { return u.query("select count(*) from pawl.job") == "0" })
	u.stop(a, b)
	for _, pawl := range []string{rc1.pawl, rc2.pawl} {
		check := exec.Command(pawl, "migrate", "check")
		check.Env = append(os.Environ(), "PAWL_DATABASE_URL="+u.database)
		if said, err := check.CombinedOutput(); err != nil {
			t.Errorf("%s migrate check: %v\n%s", pawl, err, said)
		}
	}
	phase("all is done")
	return sent
}

// judge counts with plain SQL. Each order has one effect of each kind. Both builds have run jobs of
// both. The new function has run once for each job that the new build enqueued.
func (u *upgrade) judge(sent int) {
	u.t.Helper()
	for _, kind := range []string{"message", "job"} {
		lost := u.number(fmt.Sprintf("select count(*) from generate_series(0, %d) as o (id) where not exists (select from effect as e where e.kind = '%s' and e.id = o.id)", sent-1, kind))
		doubled := u.number(fmt.Sprintf("select count(*) from (select from effect as e where e.kind = '%s' group by e.id having count(*) > 1) as d", kind))
		u.t.Logf("%d orders, effects of kind %s: %d lost, %d doubled", sent, kind, lost, doubled)
		if sent < 3000 || lost+doubled > 0 {
			u.t.Errorf("of %d orders, %d have lost their effect of kind %s and %d have doubled it", sent, lost, kind, doubled)
		}
	}
	ran := u.query("select e.enqueued_by, e.build, count(*) from effect as e where e.kind = 'job' group by 1, 2 order by 1, 2")
	u.t.Logf("jobs, by the build that enqueued and the build that ran them:\n%s", ran)
	if strings.Count(ran, "\n") != 3 {
		u.t.Errorf("not every build has run jobs of every build:\n%s", ran)
	}
	if noted, by := u.query("select count(*) from pawl.noted"), u.query("select count(*) from effect as e where e.enqueued_by = 'rc.2'"); noted != by {
		u.t.Errorf("rc.2 enqueued %s jobs, and its new function ran for %s", by, noted)
	}
	if said := u.unexpected(); said != "" {
		u.t.Errorf("workers said\n%s", said)
	}
}
