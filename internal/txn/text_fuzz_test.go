package txn_test

import (
	"context"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/internal/txn"
	"github.com/pawl-go/pawl/pawltest"
)

// A reader is a server that shows how PostgreSQL parses a text.
type reader struct {
	conn, other *pgx.Conn
	url         string
	tries       int64
}

// readerOf returns a reader for a server with a table that texts may write to.
func readerOf(tb testing.TB) *reader {
	tb.Helper()
	p := &reader{url: pawltest.URL(tb, "create table witness (n bigint primary key); create table t (n int); create type begin as enum ('a'); create type atomic as enum ('a')")}
	p.other = p.connect(tb)
	tb.Cleanup(func() { _ = p.other.Close(context.Background()) })
	return p
}

func (p *reader) connect(tb testing.TB) *pgx.Conn {
	tb.Helper()
	config, err := pgx.ParseConfig(p.url)
	if err != nil {
		tb.Fatal(err)
	}
	config.DefaultQueryExecMode = pgx.QueryExecModeExec // DISCARD ALL drops what is prepared
	conn, err := pgx.ConnectConfig(context.Background(), config)
	if err != nil {
		tb.Fatal(err)
	}
	return conn
}

// ends sends a text in a transaction, as one message of the simple protocol, and reports whether
// that transaction has ended. It ended by COMMIT if its row is visible, and by ROLLBACK if the
// transaction id has changed.
func (p *reader) ends(tb testing.TB, text string) (committed, ended bool) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if p.conn == nil || p.conn.IsClosed() {
		p.conn = p.connect(tb)
	}
	p.tries++
	var before, after string
	tx, err := p.conn.Begin(ctx)
	if err == nil {
		_, err = tx.Exec(ctx, "set local lock_timeout = '1s'")
	}
	if err == nil {
		err = tx.QueryRow(ctx, "insert into witness values ($1) returning pg_current_xact_id()::text", p.tries).Scan(&before)
	}
	if err != nil {
		tb.Fatal(err)
	}
	pg := p.conn.PgConn()
	_ = pg.Exec(ctx, text).Close()
	switch {
	case p.conn.IsClosed():
	case pg.TxStatus() == 'I':
		ended = true
	case pg.TxStatus() == 'T':
		r := pg.ExecParams(ctx, "select pg_current_xact_id()::text", nil, nil, nil, nil).Read()
		if r.Err == nil {
			after = string(r.Rows[0][0])
		}
		ended = before != after
	}
	if err := p.other.QueryRow(ctx, "select exists (select from public.witness as w where w.n = $1)", p.tries).Scan(&committed); err != nil {
		tb.Fatal(err)
	}
	if committed { // its settings may change how the next text is read
		_ = p.conn.Close(ctx)
		return true, true
	}
	if !p.conn.IsClosed() {
		_ = pg.Exec(ctx, "rollback").Close()
		if err := pg.Exec(ctx, "discard all").Close(); err != nil {
			_ = p.conn.Close(ctx)
		}
	}
	return false, ended
}

// hides fails the test if the server ends the transaction with a text for which look reports no
// end.
func (p *reader) hides(tb testing.TB, text string) (ended bool) {
	tb.Helper()
	seen := txn.Ends(text)
	committed, ended := p.ends(tb, text)
	if ended && seen == "" {
		tb.Errorf("%q ends the transaction (by COMMIT: %v), and is let through", text, committed)
	}
	return ended
}

// A grammar of texts that may hide the end of a transaction: a beginning, a few values with
// something between them, and a statement that ends the transaction.
var (
	beginnings = []string{"select ", "SELECT/**/", "insert into t values (1); select ", "create or replace view v as select ", "create or replace function f() returns int begin atomic select ",
		"create or replace function f() returns int begin/**/ATOMIC select 1; select ", "create or replace function f(begin int) returns int return ", "create or replace procedure q(begin atomic) begin atomic select ",
		"create or replace procedure q() begin atomic end; select ", "create or replace function f() returns int language sql set search_path to begin, atomic return ",
		"create rule r as on insert to t do also (select ", "prepare x as select ", "explain select ", "do $$ begin null; end $$; select "}
	values = []string{"1", "e'a'", "E'a\\''", "e'a''\\''", "'a\\'", "'a''b'", "u&'a'", "U&'\\0061'", "n'a'", "b'1'", "x'1'", "$$;$$", "$a$;$$;$a$", "$é$'$é$", "t.n", "(1)", "(select 1)",
		"case when true then 1 end", "a$e'\\'", "e'\\\\'", "''", "\"a;\"\"'\"", "1e1", "0x1", "array[1]", "caſe", "'\v'", "e'\\x5c'"}
	between = []string{" ", "\n", "\r", " -- x\n", " --'\n", "-- x\n--y\n ", "/* ' */", "/* /* ; */ ' */", "\t\n\f", ", ", "||", " as begin, ", " as case, ", " as end, ", " as atomic, ", " begin, ", "::text, ", " + ", ""}
	lasts   = []string{"", " as begin", " as case", " begin", " end", "; end", "; select 2; end", ")", " from t", "; savepoint s; rollback to s", "\n'\\''", "'\\''", "\n''"}
	ends    = []string{"; commit; begin", "; end; begin", "; abort", "; rollback and chain", "; commit; begin; select ''--'", "; commit; begin; select '\\'--'", ";commit", "; prepare transaction 'x'", ";/* */end/**/;", ""}
)

func anyOf(r *rand.Rand, all []string) string { return all[r.IntN(len(all))] }

// The server ends no transaction with a text of that grammar unless look reports it. Some of the
// texts do end it.
func TestLook_SeesWhatTheServerSees(t *testing.T) {
	t.Parallel()
	p := readerOf(t)
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	ended := 0
	for range 800 {
		text := anyOf(r, beginnings) + anyOf(r, values)
		for range r.IntN(4) {
			text += anyOf(r, between) + anyOf(r, values)
		}
		text += anyOf(r, lasts) + anyOf(r, ends)
		if p.hides(t, text) {
			ended++
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	if ended < 20 {
		t.Errorf("only %d texts ended a transaction; seed %d", ended, seed)
	}
}

// hidden lists texts in which look once missed a statement.
var hidden = []string{
	"create or replace view v as select 1 as begin; commit; begin",
	"create view w as select begin atomic from (select 1 as begin) as s; end; begin",
	"select E'a'\n'\\''; commit; begin; select '' --'",
	"select E'a' -- x\n '\\''; commit; begin; select '' --'",
	"select E'a''\\''; commit; begin; select ''",
	"create or replace function f(begin int) returns int language sql as 'select 1'; commit; begin",
	"create or replace function f() returns int begin atomic select 1 as begin; end; commit; begin",
	"create or replace function f() returns int begin atomic select 1 as case; end; commit; begin",
	"create or replace function f() returns int begin atomic select 1 as caſe; end; commit; begin",
	"create or replace function f() returns int begin atomic select 1; end; end; begin",
	"create or replace procedure q() begin atomic end; end; begin",
	"create or replace function f(begin atomic) returns int language sql as 'select 1'; end; begin",
	"create or replace function f() returns int begin atomic select case when true then 1 end; end; abort; begin",
}

// The server ends the transaction with each of the hidden texts, and look reports it.
func TestLook_SeesWhatWasHidden(t *testing.T) {
	t.Parallel()
	p := readerOf(t)
	for _, text := range hidden {
		if !p.hides(t, text) {
			t.Errorf("%q does not end the transaction: it is no example", text)
		}
	}
}

// FuzzLook searches for texts that hide the end of a transaction. It runs them on a server of its
// own.
func FuzzLook(f *testing.F) {
	for _, text := range hidden {
		f.Add(text)
	}
	for _, text := range []string{"select $a$;$$;$a$; commit", "select U&'\\'; commit", "select 0x1E'\\'; commit; select '", "/* /* ; */ */ commit", "select 1e'\\''; commit; --'",
		"do $$ begin commit; end $$", "savepoint a; rollback to a", "create rule r as on insert to t do also (select 1; select 2); commit"} {
		f.Add(text)
	}
	p := readerOf(f)
	f.Fuzz(func(t *testing.T, text string) {
		if !strings.Contains(strings.ToLower(text), "program") { // COPY TO PROGRAM
			p.hides(t, text)
		}
	})
}
