package txn

import "testing"

// look distinguishes statements that end a transaction from a rollback to a savepoint and from
// other statements, anywhere in a text.
func TestLook_OnlyWhatEndsTheTransaction(t *testing.T) {
	t.Parallel()
	for _, query := range []string{"commit", " COMMIT AND CHAIN", "end;", "abort", "rollback", "Rollback and chain", "rollback; begin", "rollback work",
		"-- a note\nrollback transaction and chain", "prepare transaction 'x'", "commit prepared 'x'", "ROLLBACK PREPARED 'x'", ";;commit",
		"/* a /* nested */ note */ commit", "--\n--\n\fcommit", "--x\rcommit", "insert into t values (1); commit; begin", "select 1;/**/end",
		"select 'a;b'; commit", `select e'\'; '; commit`, `select '\'; commit`, "select ';''; '; abort", `select ";"; commit`, "select $$;$$; commit",
		"select $a$; $b$ $$ $a$; commit", "select $1; commit", "select 1 as a$b$; commit", "commit/* and */and chain", "COMMIT--", "rollback/**/to/**/; commit",
		"create function f() returns int begin atomic select case when true then 1 end; end; commit", "create table t (n int); commit",
		"create table begin (n int); commit", "savepoint a; rollback to a; rollback",
		"create or replace view v as select 1 as begin; commit", "create view v as select 1 as begin; end", "create view v as select begin atomic from x; end", "create function f(begin int) returns int language sql as 'select 1'; commit",
		"create function f(begin atomic) returns int language sql as 'select 1'; end", "create function f() returns int begin atomic select 1 as case; end; end",
		"create function f() returns int begin atomic select 1 as caſe; end; commit", "create function f() returns int begin atomic select 1 as begin; end; end",
		"create procedure f() begin atomic end; end", "create function f() returns int set search_path to begin, atomic language sql as ''; end",
		"select e'a'\n'\\''; commit; select '' --'", "select e'a' -- x\n -- y\n '\\''; commit; select '' --'", "select e'a''\\''; commit; select ''",
		"select e'a' /* x \n */; commit", "select e'a' 'b\\'; commit"} {
		if _, _, end := look(query); end == "" {
			t.Errorf("%q ends a transaction", query)
		}
	}
	for _, query := range []string{"", ";", "--", "/*", "rollback to a", "ROLLBACK TO SAVEPOINT a", "rollback work to a", "rollback transaction to savepoint a", "prepare p as select 1",
		"begin", "savepoint commit", "insert into commit values (1)", "endless", "rollback/**/to a", "select 'a'; rollback to a", "select '; commit'", "select $$; commit$$",
		"select 1 -- ; commit", "select 1 /* ; commit */", `select "; commit"`, `select e'\'; commit'`, "select $x$; commit; $x$", "select '; commit", "select $x$; commit",
		"do $$ begin commit; end $$", "create or replace function f() returns int begin atomic select case when true then 1 end; select 2; end",
		"create procedure p() begin atomic insert into t values (1); end", "select case when true then 1 end", "commits", "commit_1",
		"create or replace procedure p() begin/**/atomic insert into t values (1); end", "create function f() returns int begin atomic select case when true then 1 end; end;",
		"create procedure p() begin atomic end", "select e'a'\n'; commit'", "select e'''; commit'", "select e'\\'''; commit'"} {
		if _, _, end := look(query); end != "" {
			t.Errorf("%q ends no transaction", query)
		}
	}
}

// look finds statements that change the session anywhere in a text.
func TestLook_FindsSessionChanges(t *testing.T) {
	t.Parallel()
	for query, want := range map[string]bool{"set role x": true, "SET LOCAL role x": false, "set transaction read only": false, "set constraints all deferred": false,
		"reset all": true, "listen x": true, "load 'x'": true, "select 1; set role x": true, "select 'set; set'": false, "/* */ set role x": true, "update t set x = 1": false,
		"select set_config('role', 'x', false)": true, "select pg_catalog.set_config($1, coalesce($2, 'a,b)'), TRUE )": false, "select SET_CONFIG('role', $1, $2)": true,
		"select set_config('a', f(1, (2)), true), set_config('b', 'true', false)": true, `select "set_config" ('a', 'b', true)`: false,
		"select set_config('a', 'b, true)', false)": true, "select set_config('a', 'b', true); select 1": false, "select set_config(": true} {
		if changes, _, _ := look(query); changes != want {
			t.Errorf("%q: %v", query, changes)
		}
	}
}

// look finds statements that drop prepared statements, so that pgx can forget them.
func TestLook_FindsDroppedStatements(t *testing.T) {
	t.Parallel()
	for query, want := range map[string]bool{"deallocate all": true, "DEALLOCATE PREPARE ALL": true, "select 1; discard all": true, "deallocate a": false, "discard plans": false} {
		if _, drops, _ := look(query); drops != want {
			t.Errorf("%q: %v", query, drops)
		}
	}
}

func BenchmarkLook(b *testing.B) {
	for b.Loop() {
		look("insert into effect (a, b, c) values ($1, $2, $3) on conflict do nothing")
	}
}
