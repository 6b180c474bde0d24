package adopt

import (
	"strings"
	"testing"
)

// Each table that cannot be adopted is refused, with the next step.
func TestFind_Refuses(t *testing.T) {
	t.Parallel()
	b := setup(t, example+`
create view seen as select * from processed_messages;
create table no_index (id text not null, at timestamptz);
insert into no_index values ('a'), ('a'), ('b');
create table partial (id text not null); create unique index on partial (id) where id <> 'x';
create table late (id text unique deferrable);
create table pair (handler text, id text, primary key (handler, id));
create table three (a text, b text, c text, primary key (a, b, c));
create table octets (id bytea primary key);
create collation folding (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
create table folded (id text collate "folding" primary key);
create table times (id text primary key, a timestamptz, b timestamptz, day date, doc jsonb, n int);
create table parent (id text primary key); create table child () inherits (parent);
create table parts (id text, at timestamptz, primary key (id, at)) partition by range (at);
create table "Odd" (id text primary key);
create table hidden (id text primary key); alter table hidden enable row level security, force row level security`)
	for _, c := range []struct {
		Choice
		why, next string
	}{
		{Choice{Table: "nothing"}, "there is no table nothing", "billing.processed_messages"},
		{Choice{Table: "odd"}, "there is no table odd", `'public."Odd"'`},
		{Choice{Table: "seen"}, "public.seen is a view", "the table below it"},
		{Choice{Table: "pawl.inbox"}, "pawl.inbox is Pawl's own", "your own table"},
		{Choice{Table: "pg_catalog.pg_class"}, "part of PostgreSQL", "your own table"},
		{Choice{Table: "no_index_pkey"}, "there is no table", "correct the name"},
		{Choice{Table: "pair_pkey"}, "is not a table", "your own table"},
		{Choice{Table: "no_index"}, "no unique index", "--key"},
		{Choice{Table: "no_index", Key: "id"}, "1 of its keys are there twice", `delete the copies, then: create unique index concurrently on public.no_index ("id")`},
		{Choice{Table: "partial", Key: "id"}, "no plain unique index on id", "create unique index concurrently"},
		{Choice{Table: "late", Key: "id"}, "no plain unique index on id", "create unique index concurrently"},
		{Choice{Table: "pair"}, "has two columns: handler, id", "--scope handler=VALUE"},
		{Choice{Table: "pair", Scope: "nope", ScopeValue: "x"}, "no unique index of public.pair has the key and nope", "--key and --scope"},
		{Choice{Table: "processed_messages", Scope: "body", ScopeValue: "x"}, "no unique index", "--key and --scope"},
		{Choice{Table: "three"}, "has 3 columns: a, b, c", "one --scope column"},
		{Choice{Table: "pair", Key: "handler"}, "has two columns: handler, id", "--scope id=VALUE"},
		{Choice{Table: "parts"}, "parts_pkey has the time at", "not partitioned by time"},
		{Choice{Table: "octets"}, "is of type bytea", "a column of type text"},
		{Choice{Table: "folded"}, "takes different texts for equal", "by hand"},
		{Choice{Table: "times"}, "several times: a and b", "--time a"},
		{Choice{Table: "times", Time: "day"}, "the time day is of type date", "leave --time out"},
		{Choice{Table: "times", Time: "c"}, "--time: public.times has no column c", "id text"},
		{Choice{Table: "times", Time: "a", Payload: "doc"}, "jsonb does not keep the octets", "leave --payload out"},
		{Choice{Table: "times", Time: "a", Payload: "n"}, "the payload n is of type integer", "--payload"},
		{Choice{Table: "processed_messages", Key: "id; drop table x"}, "has no column id; drop table x", "message_id text"},
		{Choice{Table: "parent"}, "has child tables", "one table"},
	} {
		c.Consumer = "payments"
		_, err := Find(t.Context(), b.Conn, c.Choice)
		b.wantRefusal(err, c.why, c.next)
	}
	b.exec("create role adopt_other; grant usage on schema pawl to adopt_other; grant select on hidden, pawl.consumer to adopt_other; set role adopt_other")
	_, err := Find(t.Context(), b.Conn, Choice{Table: "hidden", Consumer: "c"})
	b.wantRefusal(err, "row security hides rows", "bypassrls")
	_, err = Find(t.Context(), b.Conn, Choice{Table: "processed_messages", Consumer: "c"})
	b.wantRefusal(err, "this user cannot read public.processed_messages", "grant select")
	b.exec("reset role; drop owned by adopt_other; drop role adopt_other")
}

// Names and values with quotes, dollars and keywords reach the SQL as they are.
func TestFind_OddNames(t *testing.T) {
	t.Parallel()
	for _, consumer := range []string{`pay$$; drop table victim; --`, `it's "x"\`, "select", strings.Repeat("ü", 100), "$table$key", "%s %"} {
		t.Run(consumer[:min(8, len(consumer))], func(t *testing.T) {
			t.Parallel()
			b := setup(t, `
create table victim (id int);
create schema "a.b"; create table "a.b"."$key ""table" ("Select" text, "$text'" text, "time ;" timestamptz default clock_timestamp(), "b$$" text, primary key ("Select", "$text'"));
insert into "a.b"."$key ""table" select 'v$$''$table\', 'key' || n, now(), 'body' || n from generate_series(1, 20) as n;
insert into "a.b"."$key ""table" values ('other', 'key1', default, 'b'), ('other', 'key99', default, 'b')`)
			table := b.find(Choice{Table: `"a.b"."$key ""table"`, Consumer: consumer, Key: "$text'", Payload: "b$$", Scope: "Select", ScopeValue: `v$$'$table\`})
			b.run(table, "shadow")
			if r := b.run(table, "backfill"); r.Copied != 20 || r.Left != 0 {
				t.Errorf("%+v", r)
			}
			b.want(20, "select count(*) from pawl.inbox where consumer = $1 and key ~ '^key[0-9]+$'", consumer)
			if _, err := b.Exec(t.Context(), table.Call(), "m", "key1", []byte("body1"), "duplicate_ignored"); err != nil {
				t.Error(err)
			}
			b.want(0, "select count(*) from "+table.names.differences)
			b.run(table, "switch")
			b.exec(`delete from "a.b"."$key ""table" where "$text'" = 'key2'`)
			if r := b.run(table, "back"); r.Copied != 1 {
				t.Errorf("%+v", r)
			}
			if p := b.rehearse(table, ""); p.Lost+p.Doubled > 0 || p.Messages != 19 {
				t.Errorf("%+v", p)
			}
			b.exec(string(table.Drop()))
			b.want(0, "select count(*) from pg_proc where proname like 'adopt_%'")
			b.want(0, "select count(*) from victim")
		})
	}
}

// Each type of key and of payload gives the key and the fingerprint that the consumer will use.
func TestFind_Types(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ key, keys, payload, body, bytes string }{
		{"text", "('a'), ('b')", "bytea", `convert_to('{"a": 1}', 'UTF8')`, `{"a": 1}`},
		{`text collate "en-x-icu"`, "('a'), ('B')", "text", `'ü'`, "ü"},
		{"varchar(40)", "('a'), ('b')", "varchar(40)", `'x\y'`, `x\y`},
		{"uuid", "('5f0c8e1a-3b1d-4c1e-9f57-8a2d0c6b7e42'), ('ffffffff-ffff-ffff-ffff-ffffffffffff')", "json", `'{"b":1,  "a":2}'`, `{"b":1,  "a":2}`},
		{"smallint", "(-32767), (32767)", "bytea", `''`, ""},
		{"integer", "(-2147483647), (2147483647)", "bytea", `'x'`, "x"},
		{"bigint", "(-9223372036854775807), (9223372036854775807)", "bytea", `'x'`, "x"},
		{"hashed", "('a'), ('b')", "bytea", `'x'`, "x"},
		{"short", "('a'), ('b')", "bytea", `'x'`, "x"},
	} {
		t.Run(c.key, func(t *testing.T) {
			t.Parallel()
			parted := ""
			if c.key == "hashed" { // a domain, and a table with partitions
				parted = " partition by hash (id); create table seen_0 partition of seen for values with (modulus 1, remainder 0)"
			}
			b := setup(t, `create domain short as text check (length(value) < 9); create domain hashed as text;
create table seen (id `+c.key+` primary key, doc `+c.payload+`, at timestamp default clock_timestamp())`+parted+`;
insert into seen (id) values `+c.keys+`; update seen set doc = `+c.body)
			table := b.find(Choice{Table: "seen", Consumer: "c", Payload: "doc"})
			b.run(table, "shadow")
			if r := b.run(table, "backfill"); r.Copied != 2 || r.Left != 0 {
				t.Errorf("%+v", r)
			}
			b.want(2, "select count(*) from pawl.inbox as i join seen as s on s.id::text = i.key collate \"C\" where i.hash = sha256(int8send(octet_length($1::bytea)) || $1)", []byte(c.bytes))
			b.exec("delete from seen; insert into pawl.inbox (consumer, key, hash, processed_at) values ('c', 'no number', sha256('x'), now()), ('c', '99999999999999999999999', sha256('x'), now())")
			want := int64(2)
			if table.keyType() == "text" {
				want = 4
			}
			if c.key == "short" {
				return // the domain refuses the planted keys
			}
			if r := b.run(table, "back"); r.Copied != want {
				t.Errorf("%+v, want %d", r, want)
			}
		})
	}
}

// The insert of the switch leaves no row without a time, because such a row never becomes old.
func TestInsert_SetsTheTime(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ at, insert string }{
		"no default":           {"at timestamptz", "insert into public.seen (id, doc, at, source) values ($1, $2, clock_timestamp(), $3) on conflict do nothing"},
		"no default, not null": {"at timestamptz not null", "insert into public.seen (id, doc, at, source) values ($1, $2, clock_timestamp(), $3) on conflict do nothing"},
		"no zone":              {"at timestamp", "insert into public.seen (id, doc, at, source) values ($1, $2, clock_timestamp(), $3) on conflict do nothing"},
		"a default":            {"at timestamptz default now()", "insert into public.seen (id, doc, source) values ($1, $2, $3) on conflict do nothing"},
		"computed":             {"day date default current_date, at timestamp generated always as (day::timestamp) stored", "insert into public.seen (id, doc, source) values ($1, $2, $3) on conflict do nothing"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, "create table seen (id text primary key, "+c.at+", doc bytea, source int not null)")
			table := b.find(Choice{Table: "seen", Consumer: "c", Payload: "doc"})
			if table.Insert() != c.insert {
				t.Error(table.Insert())
			}
			if _, err := b.Exec(t.Context(), table.Insert(), "m1", []byte("x"), 7); err != nil {
				t.Fatal(err)
			}
			b.want(1, "select count(*) from seen where at is not null")
			b.want(0, string(table.Untimed()))
		})
	}
}

// A table is described with what an operator must know.
func TestFind_Notes(t *testing.T) {
	t.Parallel()
	b := setup(t, `
create unlogged table seen (id text unique, doc bytea not null, source int not null, at timestamptz);
insert into seen values (null, 'x', 1, now()), ('', 'x', 1, now()), (repeat('k', 256), 'x', 1, now()), ('a', 'x', 1, now() - interval '40 days'), ('b', 'x', 1, null)`)
	table := b.find(Choice{Table: "seen", Consumer: "c", Payload: "doc"})
	all := strings.Join(table.Notes, "\n")
	for _, part := range []string{"unlogged", "rows without a key: 1", "keys that are empty or longer than 255 octets: 2", "must also fill source integer", "doc must not be null",
		"rows without a time: 1. They count as recent until they have one: update public.seen as p set at = clock_timestamp() where p.at is null"} {
		if !strings.Contains(all, part) {
			t.Errorf("no %q in\n%s", part, all)
		}
	}
	if table.Rows.Read != 5 || table.Rows.Recent != 4 || table.Rows.More {
		t.Errorf("%+v", table.Rows)
	}
	// a row without a time counts as recent
	b.want(1, string(table.Left()))
	b.exec("insert into pawl.consumer (name, window_ms) values ('c', 50 * 86400000::bigint)")
	if table = b.find(Choice{Table: "seen", Consumer: "c"}); table.Days != 55 {
		t.Errorf("%d days", table.Days)
	}
	b.want(2, string(table.Left()))
	b.exec("update pawl.consumer set window_ms = null where name = 'c'") // it remembers for ever
	if table = b.find(Choice{Table: "seen", Consumer: "c"}); table.Days < 3650 {
		t.Errorf("%d days", table.Days)
	}
	_, err := table.Run(t.Context(), b.Conn, "back", func(Result) {})
	b.wantRefusal(err, "no value for doc bytea, source integer", "drop not null")
}
