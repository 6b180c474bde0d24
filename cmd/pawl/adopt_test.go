package main

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"syscall"
	"testing"

	"github.com/pawl-go/pawl/internal/testbed/patience"
	"github.com/pawl-go/pawl/pawltest"
)

// withProcessed has the guide's table with 3000 rows.
func withProcessed(t *testing.T) string {
	t.Helper()
	return pawltest.URL(t, `
create table processed_messages (message_id text primary key, body bytea, processed_at timestamptz not null default clock_timestamp());
insert into processed_messages (message_id, body) select 'm' || n, 'x' from generate_series(1001, 4000) as n`)
}

var adoptPayments = []string{"adopt", "processed_messages", "--consumer", "payments", "--payload", "body"}

func adopt(more ...string) []string {
	return append(adoptPayments[:len(adoptPayments):len(adoptPayments)], more...)
}

// Without a step the command prints what it found and the plan, and changes nothing.
func TestAdopt_Plan(t *testing.T) {
	t.Parallel()
	db := withProcessed(t)
	r := mustPawl(t, db, adoptPayments...)
	for _, part := range []string{"public.processed_messages, to be taken over by consumer payments\n", "key        message_id text, unique by processed_messages_pkey\n",
		"rows       3000, 3000 of them of the last 31 days\n", "\n1 shadow\n", "\n2 backfill\n", "\n3 switch\n", "\n4 remove\n", "\nback\n",
		"\n    create or replace function public.adopt_payments_backfill(p_after text)\n", "takes      about 2s at"} {
		if !strings.Contains(r.stdout, part) {
			t.Errorf("no %q in\n%s", part, r.stdout)
		}
	}
	type plan struct {
		Table string
		Rows  struct{ Read, Recent int }
		Plan  []struct{ Name, SQL, Locks, Takes, Back string }
	}
	read := func(args ...string) (p plan) {
		t.Helper()
		if err := json.Unmarshal([]byte(mustPawl(t, db, args...).stdout), &p); err != nil {
			t.Fatal(err)
		}
		return p
	}
	p := read(adopt("--json")...)
	if p.Table != "public.processed_messages" || p.Rows.Read != 3000 || p.Rows.Recent != 3000 || len(p.Plan) != 5 || p.Plan[1].Name != "backfill" {
		t.Errorf("%+v", p)
	}
	for _, s := range p.Plan {
		if s.SQL == "" || s.Locks == "" || s.Takes == "" || s.Back == "" {
			t.Errorf("%+v", s)
		}
	}
	if n := one[int](t, db, "select count(*)::int from pg_class where relname like 'adopt%'"); n != 0 {
		t.Errorf("%d tables were made", n)
	}
	if p := read("adopt", "processed_messages", "--consumer", "payments", "--json"); len(p.Plan) != 4 {
		t.Errorf("without a payload: %+v", p)
	}
}

// The steps run in order, from the shadow to the removal and back.
func TestAdopt_Steps(t *testing.T) {
	t.Parallel()
	db := withProcessed(t)
	wantFailure(t, pawl(t, db, adopt("--step", "backfill", "--yes")...), 1, "step shadow has not been run for consumer payments", "run it first: --step shadow")
	for _, step := range []struct{ name, says string }{
		{"shadow", "add: select public.adopt_payments_shadow($1, $2, $3, $4)"},
		{"backfill", "copied     3000 keys; 0 were known, 0 with another payload\n  left       0 rows"},
		{"switch", "insert into public.processed_messages (message_id, body) values ($1, $2) on conflict do nothing"},
	} {
		if r := mustPawl(t, db, adopt("--step", step.name, "--yes")...); !strings.Contains(r.stdout, step.says) {
			t.Errorf("%s: no %q in %s", step.name, step.says, r.stdout)
		}
	}
	wantFailure(t, pawl(t, db, adopt("--step", "remove", "--yes")...), 1, "no process of consumer payments has reported itself", "--step switch")
	exec1(t, db, "select pawl_v1.consumer_report('payments', 1000); delete from processed_messages where message_id = 'm2000'")
	mustPawl(t, db, adopt("--step", "remove", "--yes")...)
	r := decode[map[string]any](t, mustPawl(t, db, adopt("--step", "back", "--yes", "--json")...).stdout)
	if r["copied"] != 1.0 || r["step"] != "back" {
		t.Errorf("%v", r)
	}
}

// Each refusal is one line with the next step, and tells who may do it.
func TestAdopt_Refuses(t *testing.T) {
	t.Parallel()
	db := withProcessed(t)
	const unused = "postgres://u:" + secret + "@127.0.0.1:1/d"
	for line, want := range map[string][]string{
		"adopt":                            {"it takes 1 argument, not 0", "pawl adopt TABLE --consumer NAME"},
		"adopt t":                          {"the consumer is missing", "--consumer"},
		"adopt t --consumer c --step luck": {`no step "luck"`, "shadow, backfill"},
		"adopt t --consumer c --step back": {"this would copy the keys of the inbox", "--yes"},
		"adopt t --consumer c --rehearse --step x":       {"no step", "shadow"},
		"adopt t --consumer c --rehearse --step back":    {"--rehearse plays all steps", "one of them"},
		"adopt t --consumer c --scope handler":           {"--scope handler has no value", "handler=invoices"},
		"adopt t --consumer " + strings.Repeat("c", 256): {"at most 255 octets", "Config"},
	} {
		wantFailure(t, pawl(t, unused, strings.Fields(line)...), 2, want...)
	}
	for table, want := range map[string]string{"nothing": "there is no table nothing", `a"b; drop`: "invalid name syntax", "": "", "pawl.inbox": "is Pawl's own", "x.y.z.w": ""} {
		wantFailure(t, pawl(t, db, "adopt", table, "--consumer", "payments"), 1, want)
	}
	exec1(t, db, `do $$ begin
  create role adopt_limited login; exception when duplicate_object then null;
end $$;
grant usage on schema public, pawl, pawl_v1 to adopt_limited; revoke create on schema public from public;
grant select on processed_messages, pawl.consumer, pawl.migration to adopt_limited; grant select, insert on pawl.inbox to adopt_limited; grant execute on all functions in schema pawl_v1 to adopt_limited`)
	limited := strings.Replace(db, "postgres://postgres@", "postgres://adopt_limited@", 1)
	mustPawl(t, limited, adoptPayments...)
	wantFailure(t, pawl(t, limited, adopt("--step", "shadow", "--yes")...), 1, "permission denied for schema public", "as the owner of the table, with pawl_app")
	r := pawl(t, limited, adopt("--rehearse")...)
	wantFailure(t, r, 1, "permission denied for database", "create on the database")
	exec1(t, db, "drop owned by adopt_limited")
}

// A table that a migration has locked is not waited for without end.
func TestAdopt_LockedTable(t *testing.T) {
	t.Parallel()
	db := withProcessed(t)
	tx, err := connect(t, db).Begin(t.Context())
	if err == nil {
		_, err = tx.Exec(t.Context(), "lock table processed_messages in access exclusive mode")
	}
	if err != nil {
		t.Fatal(err)
	}
	wantFailure(t, pawl(t, db, adoptPayments...), 1, "another transaction holds a lock for longer than 5 s", "then run it again")
}

// A rehearsal prints its counts, and leaves nothing.
func TestAdopt_Rehearse(t *testing.T) {
	t.Parallel()
	db := withProcessed(t)
	exec1(t, db, "delete from processed_messages where message_id > 'm1040'")
	r := mustPawl(t, db, adopt("--rehearse")...)
	if !strings.HasPrefix(r.stdout, "40 messages, ") || !strings.HasSuffix(r.stdout, " connections cut: 0 lost, 0 doubled\n") || strings.Count(r.stderr, "\n") != 4 {
		t.Errorf("%+v", r)
	}
	if n := one[int](t, db, "select count(*)::int from pg_namespace where nspname like 'adopt%'"); n != 0 {
		t.Errorf("%d schemas are left", n)
	}
}

// A backfill that SIGKILL ends in the middle goes on when it is run again.
func TestAdopt_Killed(t *testing.T) {
	t.Parallel()
	db := withProcessed(t)
	mustPawl(t, db, adopt("--step", "shadow", "--yes")...)
	holder := connect(t, db)
	if _, err := holder.Exec(t.Context(), "select pg_advisory_lock(7)"); err != nil {
		t.Fatal(err)
	}
	// the fingerprint of one row waits for the lock
	exec1(t, db, `update processed_messages set body = 'wait' where message_id = 'm2500';
create or replace function adopt_payments_fingerprint(p_body bytea) returns bytea language plpgsql as $$
begin
  if p_body = 'wait' then perform pg_advisory_xact_lock(7); end if;
  return sha256(int8send(octet_length(p_body)) || p_body);
end $$`)
	var stderr bytes.Buffer
	cmd := command(t, db, adopt("--step", "backfill", "--yes")...)
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	patience.Blocked(t, connect(t, db), 1, "%adopt_payments_backfill(%")
	if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if n := one[int](t, db, "select count(*)::int from pawl.inbox"); n != 1000 {
		t.Errorf("%d keys were copied before the kill", n)
	}
	if err := holder.Close(context.WithoutCancel(t.Context())); err != nil {
		t.Fatal(err)
	}
	mustPawl(t, db, adopt("--step", "shadow", "--yes")...)
	r := decode[map[string]any](t, mustPawl(t, db, adopt("--step", "backfill", "--yes", "--json")...).stdout)
	if n := one[int](t, db, "select count(*)::int from pawl.inbox"); n != 3000 || r["left"] != 0.0 {
		t.Errorf("%d keys, %v", n, r)
	}
}
