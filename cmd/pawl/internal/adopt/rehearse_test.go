package adopt

import (
	"context"
	"fmt"
	"strings"
	"testing"
)

func filled(rows int) string {
	return example + fmt.Sprintf(`
insert into processed_messages (message_id, body)
select 'message-' || n, convert_to('{"cents": ' || n || '}', 'UTF8') from generate_series(1, %d) as n`, rows)
}

// All steps on a copy lose and double nothing.
func TestRehearse(t *testing.T) {
	t.Parallel()
	b := setup(t, filled(60))
	table := b.find(Choice{Table: "processed_messages", Consumer: "payments", Payload: "body"})
	p := b.rehearse(table, "")
	if p.Messages != 60 || p.Lost != 0 || p.Doubled != 0 || p.Deaths == 0 || len(p.Left) > 0 || len(p.Played) != 4 {
		t.Errorf("%+v", p)
	}
	b.want(60, "select count(*) from processed_messages")
	b.want(0, "select count(*) from pg_proc where proname like 'adopt_%'")
}

// Planted mistakes show in the counts.
func TestRehearse_CountsFaults(t *testing.T) {
	t.Parallel()
	b := setup(t, filled(24))
	table := b.find(Choice{Table: "processed_messages", Consumer: "payments", Payload: "body"})
	for fault, in := range map[string]*Table{"no backfill": table, "no copy": table, "no table": b.find(Choice{Table: "processed_messages", Consumer: "payments"})} {
		if p := b.rehearse(in, fault); p.Doubled == 0 || p.Lost != 0 || len(p.Examples) == 0 {
			t.Errorf("the fault %q is not seen: %+v", fault, p)
		}
	}
	if p := b.rehearse(table, "early ack"); p.Lost == 0 || p.Doubled != 0 || len(p.Examples) == 0 {
		t.Errorf("lost effects are not seen: %+v", p)
	}
}

// Without a payload the table decides throughout, and without room for the keys there is no way
// back. The rehearsal says so.
func TestRehearse_InParts(t *testing.T) {
	t.Parallel()
	b := setup(t, `
create table seen (id uuid primary key default gen_random_uuid(), doc text not null, tag int generated always as (7) stored, n bigint generated always as identity, at timestamptz not null default now());
insert into seen (doc) select 'x' || n from generate_series(1, 40) as n`)
	for payload, left := range map[string]string{"": "4 was left out", "doc": "back was left out: Pawl has no value for doc"} {
		table := b.find(Choice{Table: "seen", Consumer: "c", Payload: payload})
		p := b.rehearse(table, "")
		if p.Lost+p.Doubled > 0 || p.Messages != 40 || len(p.Left) != 1 || !strings.HasPrefix(p.Left[0], left) {
			t.Errorf("%+v", p)
		}
	}
}

// A rehearsal clears what a killed one left, and touches no schema of another maker. Two at once
// are refused, and so is one with too few rows.
func TestRehearse_Leftovers(t *testing.T) {
	t.Parallel()
	b := setup(t, filled(7))
	table := b.find(Choice{Table: "processed_messages", Consumer: "payments", Payload: "body"})
	refused := func(why, next string) {
		t.Helper()
		_, err := table.Rehearse(t.Context(), b.Conn, 1, func(string) {})
		b.wantRefusal(err, why, next)
	}
	refused("has 7 rows", "a copy of the database")
	b.exec("create schema adopt_rehearsal")
	refused("exists and is not a rehearsal's", "rename it")
	b.want(1, "select count(*) from pg_namespace where nspname = $1", stage)
	b.exec("comment on schema adopt_rehearsal is '" + stageMark + "'; create table adopt_rehearsal.processed (id int); insert into processed_messages select 'm' || n, 'x' from generate_series(1, 20) as n")
	b.exec("insert into pawl.inbox (consumer, key, hash, processed_at) values ('adopt_rehearsal', 'message-1', sha256('n'), now())")
	other := b.connect(b.Config().ConnString())
	tx, err := other.Begin(t.Context())
	if err == nil {
		_, err = tx.Exec(t.Context(), "select pg_advisory_xact_lock(hashtextextended($1, 0))", stage)
	}
	if err != nil {
		t.Fatal(err)
	}
	refused("another rehearsal runs", "wait")
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if p := b.rehearse(table, ""); p.Lost+p.Doubled > 0 || p.Messages != 27 {
		t.Errorf("%+v", p)
	}
	// one that is interrupted clears up too
	ctx, cancel := context.WithCancel(t.Context())
	conn := b.connect(b.Config().ConnString())
	said := 0
	_, err = table.Rehearse(ctx, conn, 1, func(string) {
		if said++; said == 2 {
			cancel()
		}
	})
	if err == nil {
		t.Error("the interruption is not reported")
	}
	b.want(0, "select count(*) from pg_namespace where nspname = $1", stage)
	b.want(0, "select count(*) from pawl.inbox where consumer = $1", stage)
}
