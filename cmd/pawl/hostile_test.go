package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/internal/testbed/pgtest"
	"github.com/pawl-go/pawl/internal/testbed/pgtest/hostile"
	"github.com/pawl-go/pawl/migrate"
	"github.com/pawl-go/pawl/schema"
)

// withoutDatabase are commands that connect to no database or only to a server that they started.
// dashboard is among them, because its package has a test like this one.
var withoutDatabase = []string{"completion", "dashboard", "dev kafka", "dev nats", "dev postgres", "dev rabbitmq", "dev sqs", "init", "version", "webhook", "migrate print"}

// lines call every other command. A word in upper case is replaced by a value from the database.
var lines = []string{
	"migrate status", "migrate check", "migrate up --roles", "migrate down --to 1", "migrate down --to 0",
	"status", "status --json", "doctor", "size", "stale", "stale --kind job --json",
	"explain m1", "explain k1 --scope orders --json",
	"jobs list", "jobs list --queue orders --kind charge --status pending --json", "jobs show DEAD", "jobs show ARCHIVED --json",
	"jobs retry DEAD --reason r --yes", "jobs cancel DEAD --reason r --yes", "jobs discard DEAD --reason r --yes",
	"dlq list --queue dead --json", "dlq show LETTER", "dlq retry LETTER --reason r --yes", "dlq discard UNKEYED --reason r --yes",
	"dlq retry --queue many --error stock --dry-run", "dlq retry --queue many --kind k --older-than 1s --reason r --yes", "dlq discard --queue rest --reason r --yes",
	"lanes list --queue lanes --blocked", "lanes unblock lanes a --reason r --yes", "lanes policy lanes a park --reason r",
	"queues list", "queues pause q --reason r", "queues drain q --reason r", "queues resume q --reason r", "queues set q --archive=true --reason r",
	"schedules list --json", "schedules pause s --reason r", "schedules resume s --reason r", "schedules run-now s --reason r --yes", "schedules delete s --reason r --yes",
	"inbox show shop m1", "inbox replay shop dead --reason r --dry-run", "inbox replay shop dead --reason r --yes", "inbox replay shop --since 1h --reason r --yes",
	"inbox forget shop m1 --reason r --yes",
	"sequence-gates list --json", "sequence-gates reset shop account 50 --reason r --yes", "sequence-gates release shop other --reason r --yes",
	"outbox list --sink default --type T --status pending", "outbox lag", "outbox heads --sink default",
	"commands list --scope orders", "commands list --stale --json", "commands show orders k1", "commands settle orders k1 not_executed --fence COMMAND --reason r --yes",
	"steps list --scope pay", "steps show pay 1 charge", "steps settle pay 1 charge executed --fence EFFECT --reason r --yes",
	"steps again pay 2 charge --fence REFUSED --reason r --dry-run", "steps again pay 2 charge --fence REFUSED --reason r --yes",
	"adopt public.processed --consumer adopted --payload body", "adopt public.processed --consumer adopted --payload body --rehearse --json",
	"adopt public.processed --consumer adopted --payload body --step shadow --yes", "adopt public.processed --consumer adopted --payload body --step backfill --yes",
	"adopt public.processed --consumer adopted --payload body --step switch", "adopt public.processed --consumer adopted --payload body --step back --yes",
	"adopt public.processed --consumer adopted --step remove --yes",
	"purge --older-than 0s --dry-run --json", "purge --older-than 0s --reason r --yes",
	"purge --table inbox,delivery --consumer shop --older-than 1s --unreported --reason r --yes", "purge --table replay,fence --older-than 1s --reason r --yes",
}

// mayFail are lines that may exit with a code other than 0 although they worked.
var mayFail = []string{"doctor", "migrate down --to 0"}

// shows are demos in the user's database. Only an owner may create their schema.
var shows = []string{
	"demo --messages 40 --workers 1 --kills 0 --poison 1 --pipeline --payments --json --database-url URL",
	"demo --lease --json --database-url URL",
}

const hostileFixture = `
create table public.processed (id varchar(40) primary key, body text, at timestamp default now());
insert into public.processed select 'p' || n, 'x' from generate_series(1, 20) as n;
select pawl_v1.worker_register('w1', '1 minute');
select pawl_v1.queue_set('orders', '{"archive": true}', 'a', 'r'), pawl_v1.job_enqueue('orders', 'charge', '{}');
select f.outcome from pawl_v1.job_claim('orders', 1, 1) as c, lateral pawl_v1.job_finish(c.id, c.fence) as f;
select pawl_v1.job_enqueue('orders', 'charge', '{}', '{"key": "order-17", "headers": {"a": "b"}}') from generate_series(1, 2);
insert into pawl.job (queue, kind, payload, status, attempts, max_attempts, created_at, last_errors)
select q, 'k', '{}', 'dead_letter', 3, 3, now() - interval '3 hours', '[{"at": "2026-03-01T10:00:00Z", "attempt": 3, "code": "P0001", "error": "stock is away"}]'
  from unnest('{dead,letter,unkeyed,many,many,rest}'::text[]) as q;
select pawl_v1.job_enqueue('lanes', 'k', '', '{"lane": "a"}') from generate_series(1, 3);
select f.outcome from pawl_v1.job_claim('lanes', 1, 1) as c, lateral pawl_v1.job_fail(c.id, c.fence, '{"error": "e"}', '{"final": true}') as f;
select pawl_v1.schedule_put('s', 'q', 'k', 'x', '{"every_ms": 1000, "first_at": "2026-01-01T00:00:00Z"}');
select pawl_v1.outbox_append('default', 'T', 'order', '17', 'x', '{"scope": "s", "key": "k"}') from generate_series(1, 2);
select pawl_v1.consumer_report('shop', 1000, '{"horizon_ms": 10}'), pawl_v1.consumer_report('adopted', 1000);
select pawl_v1.inbox_claim('shop', 'm1', sha256('x'), '{"result_ref": "order 17"}'), pawl_v1.delivery_keep('shop', 'm1', 'x');
select pawl_v1.sequence_gate_reset('shop', 'account', 41, 'a', 'r'), pawl_v1.sequence_gate_reset('shop', 'other', 41, 'a', 'r');
do $$
begin
  for n in 43..44 loop
    perform pawl_v1.inbox_claim('shop', 'g' || n, sha256(''));
    perform pawl_v1.sequence_gate_pass('shop', r, n, '{"mode": "strict"}') from unnest('{account,other}'::text[]) as r;
    perform pawl_v1.sequence_gate_hold('shop', r, n, l.job_id) from pawl_v1.inbox_store('shop', 'g' || n, 'held', 'k', '', '{"retry_in_ms": 300000}') as l, unnest('{account,other}'::text[]) as r;
  end loop;
  perform pawl_v1.inbox_claim('shop', 'dead', sha256(''));
  perform pawl_v1.inbox_store('shop', 'dead', 'inbox/shop', 'delivery', '', '{"dead": true}');
  perform pawl_v1.delivery_keep('shop', 'dead', '', '{"stored_as": {"queue": "inbox/shop", "kind": "delivery"}}');
end
$$;
select pawl_v1.command_claim('orders', 'k1', sha256('')), pawl_v1.command_claim('orders', 'k2', sha256(''));
select pawl_v1.command_fail('orders', 'k1', c.fence, c.hash, '{"code": "timeout", "error": "no answer"}', '{"unknown": true}') from pawl.command as c where c.key = 'k1';
select pawl_v1.step_begin('pay', k, 'charge', sha256('p'), '{"recovery": "at_most_once", "provider": "stripe", "provider_key": "p"}') from unnest('{1,2}'::text[]) as k;
select pawl_v1.step_end('pay', c.key, 'charge', c.fence, case c.key when '1' then 'ambiguous' else 'refused' end, null, '{"error": "cut"}') from pawl.step_call as c;
select pawl_v1.fence_accept('r', 1)`

// meant holds the query for each word of lines.
var meant = map[string]string{
	"DEAD":     "select j.id from pawl.job as j where j.queue = 'dead'",
	"LETTER":   "select j.id from pawl.job as j where j.queue = 'letter'",
	"UNKEYED":  "select j.id from pawl.job as j where j.queue = 'unkeyed'",
	"ARCHIVED": "select a.id from pawl_v1.archive as a",
	"COMMAND":  "select c.fence from pawl.command as c where c.key = 'k1'",
	"EFFECT":   "select e.fence from pawl.step as e where e.key = '1'",
	"REFUSED":  "select e.fence from pawl.step as e where e.key = '2'",
}

// If other roles may create objects in a schema of search_path, no command runs their objects, as
// any role.
func TestCLI_IgnoresPlantedObjects(t *testing.T) {
	t.Parallel()
	for _, run := range []struct{ role, path string }{
		{"", "public"}, {"", "public,pg_catalog"}, {"pawl_app", "public,pg_catalog"}, {"pawl_reader", "public,pg_catalog"}, {"pawl_operator", "public,pg_catalog"},
	} {
		t.Run(cmp.Or(run.role, "superuser")+"/"+run.path, func(t *testing.T) {
			t.Parallel()
			db := withPath(t, hostileDatabase(t), "pg_catalog")
			words := map[string]string{}
			for word, query := range meant {
				words[word] = fmt.Sprint(one[int64](t, db, query))
			}
			if now := one[string](t, withPath(t, db, run.path), "show search_path"); now != run.path {
				t.Fatalf("the path is %s", now)
			}
			login := withPath(t, loginOf(t, db, run.role), run.path)
			words["URL"] = login
			called := slices.Clone(lines)
			if run.role == "" && run.path != "public" {
				called = append(called, shows...)
			}
			worked := 0
			for _, line := range called {
				r := pawl(t, login, fill(line, words)...)
				if hijacked(r.stdout + r.stderr) {
					t.Errorf("pawl %s: %s%s", line, r.stdout, r.stderr)
				} else if r.code == 0 {
					worked++
				} else if run.role == "" && !slices.Contains(mayFail, line) {
					t.Errorf("pawl %s: exit %d: %s%s", line, r.code, r.stdout, r.stderr)
				}
			}
			if n, err := hostile.Runs(t.Context(), connect(t, db)); n != 0 || err != nil {
				t.Errorf("%d times something planted ran (%v)", n, err)
			}
			t.Logf("%d of %d lines worked", worked, len(called))
			if least := map[string]int{"": len(called) - len(mayFail), "pawl_operator": 50, "pawl_app": 20, "pawl_reader": 25}[run.role]; worked < least {
				t.Errorf("%d of %d lines worked, want %d: the others look at nothing", worked, len(called), least)
			}
		})
	}
}

// The schema is installed, removed and installed again, and its roles are created, although public
// comes first in search_path and has objects of other roles.
func TestCLI_MigratesAmongPlantedObjects(t *testing.T) {
	t.Parallel()
	db := empty(t)
	conn := connect(t, db)
	if err := hostile.Plant(t.Context(), conn); err != nil {
		t.Fatal(err)
	}
	login := withPath(t, db, "public,pg_catalog")
	for _, line := range []string{"migrate status", "migrate up", "migrate up --roles", "migrate status --json", "migrate check", "migrate down --to 0 --yes", "migrate up --roles"} {
		mustPawl(t, login, strings.Fields(line)...)
	}
	mustPawl(t, login, "migrate", "down", "--to", "0", "--yes")
	script := mustPawl(t, "", "migrate", "print").stdout + mustPawl(t, "", "migrate", "print", "--roles").stdout
	if _, err := connect(t, login).Exec(t.Context(), script); err != nil {
		t.Error(err)
	}
	mustPawl(t, login, "migrate", "check")
	if n, err := hostile.Runs(t.Context(), conn); n != 0 || err != nil {
		t.Errorf("%d times something planted ran (%v)", n, err)
	}
}

// A new command needs a line above, or an entry in withoutDatabase.
func TestCLI_EveryCommandMeetsPlantedObjects(t *testing.T) {
	t.Parallel()
	tried := slices.Concat(lines, shows)
	found := commandsBelow(t)
	if len(found) < 50 {
		t.Errorf("%d commands: the test does not see them", len(found))
	}
	has := func(all []string, command string) bool {
		return slices.ContainsFunc(all, func(line string) bool { return line == command || strings.HasPrefix(line, command+" ") })
	}
	for _, command := range found {
		without := slices.ContainsFunc(withoutDatabase, func(w string) bool { return has([]string{command}, w) })
		if without == has(tried, command) {
			t.Errorf("pawl %s: add a line that calls it, or say that it needs no database", command)
		}
	}
}

// commandsBelow returns the runnable commands, as the help lists them.
func commandsBelow(t *testing.T, above ...string) (all []string) {
	help := mustPawl(t, "", append(slices.Clone(above), "--help")...).stdout
	_, list, group := strings.Cut(help, "\nCommands:\n")
	if !group || strings.Contains(help, "[COMMAND]") {
		all = append(all, strings.Join(above, " "))
	}
	list, _, _ = strings.Cut(list, "\n\n")
	for line := range strings.Lines(list) {
		if name := strings.Fields(line); group && len(name) > 0 {
			all = append(all, commandsBelow(t, append(slices.Clone(above), name[0])...)...)
		}
	}
	return all
}

var deniedFunction = regexp.MustCompile(`permission denied for (?:function|aggregate) (\w+)`)

// hijacked reports whether a statement resolved to a planted object: it ran, or the login was
// denied a function that is not Pawl's.
func hijacked(output string) bool {
	for _, m := range deniedFunction.FindAllStringSubmatch(output, -1) {
		if !strings.Contains(schema.API(), "pawl_v1."+m[1]+"(") {
			return true
		}
	}
	return strings.Contains(output, hostile.Mark)
}

func fill(line string, words map[string]string) (all []string) {
	for _, word := range strings.Fields(line) {
		if value, is := words[word]; is {
			word = value
		}
		all = append(all, word)
	}
	return all
}

// hostileDatabase has some rows in every table, and planted objects that only superusers may run.
func hostileDatabase(t *testing.T) string {
	t.Helper()
	h := sha256.Sum256([]byte(schema.Versions()[0].Script() + schema.Roles() + hostileFixture + hostile.Sum()))
	return pgtest.URL(t, pgtest.Template{Name: fmt.Sprintf("hostile_%x", h[:8]), Apply: func(ctx context.Context, conn *pgx.Conn) error {
		if _, err := migrate.Up(ctx, conn, nil); err != nil {
			return err
		}
		for _, script := range []string{schema.Roles(), hostileFixture} {
			if _, err := conn.Exec(ctx, script); err != nil {
				return err
			}
		}
		for _, plant := range []func(context.Context, *pgx.Conn) error{hostile.Plant, hostile.Overload, hostile.Deny} {
			if err := plant(ctx, conn); err != nil {
				return err
			}
		}
		return nil
	}})
}

func withPath(t *testing.T, db, path string) string {
	t.Helper()
	return at(t, db, func(_ *url.URL, q url.Values) { q.Set("search_path", path) })
}

// loginOf creates a login that is a member of role. Without a role it returns the tester's own.
func loginOf(t *testing.T, db, role string) string {
	t.Helper()
	if role == "" {
		return db
	}
	random := make([]byte, 4)
	_, _ = rand.Read(random) // never fails
	name := "pawl_test_" + hex.EncodeToString(random)
	exec1(t, pgtest.ServerURL(t), fmt.Sprintf("create role %s login password '%s' in role %s", name, secret, role))
	t.Cleanup(func() {
		conn, err := pgx.Connect(context.Background(), pgtest.ServerURL(t))
		if err == nil {
			_, err = conn.Exec(context.Background(), "drop role "+name)
			_ = conn.Close(context.Background())
		}
		if err != nil {
			t.Error(err)
		}
	})
	return at(t, db, func(u *url.URL, _ url.Values) { u.User = url.UserPassword(name, secret) })
}
