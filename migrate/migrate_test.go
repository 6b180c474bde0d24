package migrate_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/testbed/pgtest"
	"github.com/pawl-go/pawl/migrate"
	"github.com/pawl-go/pawl/schema"
)

func empty(t *testing.T) string {
	t.Helper()
	return pgtest.URL(t, pgtest.Template{Name: "empty"})
}

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(t.Context()) })
	return conn
}

func exec(t *testing.T, conn *pgx.Conn, statement string) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), statement); err != nil {
		t.Fatal(err)
	}
}

// If many deploys migrate at once, one migrates, the others wait and find nothing to do, and none
// fails (trap T73).
func TestT73_ConcurrentMigratorsAgree(t *testing.T) {
	t.Parallel()
	url := empty(t)
	var wg sync.WaitGroup
	applied := make([]int, 8)
	for i := range applied {
		conn := connect(t, url)
		wg.Go(func() {
			versions, err := migrate.Up(t.Context(), conn, nil)
			if err != nil {
				t.Error(err)
			}
			applied[i] = len(versions)
		})
	}
	wg.Wait()
	total := 0
	for _, n := range applied {
		total += n
	}
	if total != len(schema.Versions()) {
		t.Errorf("%d versions were applied in all, want %d", total, len(schema.Versions()))
	}
	if err := migrate.Check(t.Context(), connect(t, url)); err != nil {
		t.Error(err)
	}
}

// A migration that must wait for a table lock fails after 5 s. Otherwise it would stop the workers
// that queue behind it (trap T29).
func TestT29_MigrationDoesNotWaitForLocks(t *testing.T) {
	t.Parallel()
	url := empty(t)
	conn, blocker := connect(t, url), connect(t, url)
	if _, err := migrate.Up(t.Context(), conn, nil); err != nil {
		t.Fatal(err)
	}
	exec(t, blocker, "begin; lock table pawl.job in access share mode")
	if _, err := migrate.Down(t.Context(), conn, 0, nil); pawl.CodeOf(err) != "55P03" {
		t.Errorf("%v, want 55P03", err)
	}
}

func TestDown_RemovesEverythingAndUpStartsAgain(t *testing.T) {
	t.Parallel()
	conn := connect(t, empty(t))
	var said []string
	for range 2 {
		if _, err := migrate.Up(t.Context(), conn, func(line string) { said = append(said, line) }); err != nil {
			t.Fatal(err)
		}
		if _, err := migrate.Down(t.Context(), conn, 0, nil); err != nil {
			t.Fatal(err)
		}
		var left int
		if err := conn.QueryRow(t.Context(), "select count(*) from pg_namespace as n where n.nspname like 'pawl%'").Scan(&left); err != nil || left != 0 {
			t.Fatalf("%d schemas left, %v", left, err)
		}
	}
	if len(said) != 2*len(schema.Versions()) {
		t.Errorf("progress: %q", said)
	}
}

// Down does not drop a user's view on one of Pawl's tables.
func TestDown_RefusesToDropWhatDependsOnIt(t *testing.T) {
	t.Parallel()
	conn := connect(t, empty(t))
	if _, err := migrate.Up(t.Context(), conn, nil); err != nil {
		t.Fatal(err)
	}
	exec(t, conn, "create view public.mine as select id from pawl.job")
	_, err := migrate.Down(t.Context(), conn, 0, nil)
	if pawl.CodeOf(err) != "2BP01" {
		t.Fatalf("got %v, want dependent objects still exist", err)
	}
	if err := migrate.Check(t.Context(), conn); err != nil {
		t.Errorf("the failed down left the schema broken: %v", err)
	}
}

// Check refuses a schema that this build does not support, and says what is missing and what to do.
func TestCheck_NamesWhatIsWrong(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change string // on a current schema; "" drops it all
		want   string // in the message; "" accepts the schema
	}{
		"missing":           {"", "not installed"},
		"current":           {"select 1", ""},
		"newer, understood": {"insert into pawl.migration values (999, 'later', 1, 'x')", ""},
		"newer, not":        {"insert into pawl.migration values (999, 'later', 998, 'x')", "needs clients of version 998"},
		"other functions":   {"update pawl.migration set api_hash = 'x'", "differ from those of this build"},
		"record lost":       {"delete from pawl.migration", "not installed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn := connect(t, empty(t))
			if c.change != "" {
				if _, err := migrate.Up(t.Context(), conn, nil); err != nil {
					t.Fatal(err)
				}
				exec(t, conn, c.change)
			}
			err := migrate.Check(t.Context(), conn)
			switch {
			case c.want == "" && err != nil:
				t.Error(err)
			case c.want != "" && (!errors.Is(err, pawl.ErrSchemaMismatch) || !strings.Contains(err.Error(), c.want)):
				t.Errorf("got %v, want ErrSchemaMismatch with %q", err, c.want)
			case strings.Contains(fmt.Sprint(err), "\n"):
				t.Errorf("more than one line: %v", err)
			}
		})
	}
}

// In a rolling deploy, an old replica may start after a newer one has migrated. If the newer schema
// supports the old build, Up changes nothing and returns no error. Otherwise Up fails with the next
// step.
func TestUp_OnANewerSchema(t *testing.T) {
	t.Parallel()
	conn := connect(t, empty(t))
	if _, err := migrate.Up(t.Context(), conn, nil); err != nil {
		t.Fatal(err)
	}
	state := func() (state string) {
		t.Helper()
		if err := conn.QueryRow(t.Context(), `select (select string_agg(m::text, ' ' order by m.version) from pawl.migration as m)
  || (select string_agg(p.oid || ':' || p.xmin::text, ' ' order by p.oid) from pg_proc as p where p.pronamespace = 'pawl_v1'::regnamespace)`).Scan(&state); err != nil {
			t.Fatal(err)
		}
		return state
	}
	exec(t, conn, fmt.Sprintf("insert into pawl.migration values (999, 'later', %d, 'x')", schema.Newest()))
	before := state()
	if applied, err := migrate.Up(t.Context(), conn, nil); err != nil || len(applied) != 0 {
		t.Errorf("it still serves this build: applied %v, %v", applied, err)
	}
	if state() != before {
		t.Error("an older build changed a newer schema")
	}
	exec(t, conn, fmt.Sprintf("update pawl.migration set min_client = %d where version = 999", schema.Newest()+1))
	before = state()
	applied, err := migrate.Up(t.Context(), conn, nil)
	if !errors.Is(err, pawl.ErrSchemaMismatch) || len(applied) != 0 || !strings.Contains(err.Error(), "version 999") || !strings.Contains(err.Error(), "deploy a newer build") {
		t.Errorf("it excludes this build: applied %v, %v", applied, err)
	}
	if state() != before {
		t.Error("an older build changed a newer schema")
	}
}

// During development, functions change without a new version. Up replaces them.
func TestUp_ReplacesStaleFunctions(t *testing.T) {
	t.Parallel()
	conn := connect(t, empty(t))
	if _, err := migrate.Up(t.Context(), conn, nil); err != nil {
		t.Fatal(err)
	}
	exec(t, conn, "update pawl.migration set api_hash = 'old'; drop function pawl_v1.job_release")
	if _, err := migrate.Up(t.Context(), conn, nil); err != nil {
		t.Fatal(err)
	}
	exec(t, conn, "select pawl_v1.job_release(1, 1)")
	if err := migrate.Check(t.Context(), conn); err != nil {
		t.Error(err)
	}
}

// Files are numbered without gaps from a start, or one second apart from a time. Numbers that a
// tool does not support are refused.
func TestFiles_Numbers(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 22, 23, 59, 59, 0, time.FixedZone("", 3600))
	for _, c := range []struct {
		format  migrate.Format
		numbers migrate.Numbering
		want    string // the first file; empty: refused
	}{
		{migrate.Goose, migrate.Numbering{}, "00001_pawl_init.sql"},
		{migrate.Goose, migrate.Numbering{Start: 123456}, "123456_pawl_init.sql"},
		{migrate.Goose, migrate.Numbering{At: at}, "20261122225959_pawl_init.sql"},
		{migrate.Tern, migrate.Numbering{Start: 7}, "007_pawl_init.sql"},
		{migrate.Tern, migrate.Numbering{At: at}, ""},
		{migrate.GolangMigrate, migrate.Numbering{At: at}, "20261122225959_pawl_init.up.sql"},
		{migrate.GolangMigrate, migrate.Numbering{Start: 7, At: at}, ""},
		{migrate.GolangMigrate, migrate.Numbering{Start: -1}, ""},
		{migrate.GolangMigrate, migrate.Numbering{Start: 1 << 31}, ""},
		{migrate.Plain, migrate.Numbering{Start: 7}, ""},
	} {
		files, err := migrate.Files(c.format, 0, c.numbers)
		switch {
		case c.want == "" && !errors.Is(err, pawl.ErrArgumentInvalid):
			t.Errorf("%s, %+v: %v", c.format, c.numbers, err)
		case c.want != "" && (err != nil || files[0].Name != c.want):
			t.Errorf("%s, %+v: %v, want %s", c.format, c.numbers, err, c.want)
		}
	}
}

func TestFiles_RefusesUnknownFormat(t *testing.T) {
	t.Parallel()
	if _, err := migrate.Files("liquibase", 0, migrate.Numbering{}); !errors.Is(err, pawl.ErrArgumentInvalid) {
		t.Errorf("got %v", err)
	}
}

// Logical replication copies rows but no sequences. Check refuses such a database until its
// sequences are raised. Otherwise a fence would be assigned twice, and a call in doubt could be
// made a second time.
func TestCheck_SequencesThatAreBehind(t *testing.T) {
	t.Parallel()
	conn := connect(t, empty(t))
	if _, err := migrate.Up(t.Context(), conn, nil); err != nil {
		t.Fatal(err)
	}
	exec(t, conn, "select pawl_v1.job_enqueue('q', 'k', '', '{\"lane\": \"l\"}') from generate_series(1, 3)")
	exec(t, conn, "select pawl_v1.command_claim('s', n::text, sha256('')) from generate_series(1, 3) as n")
	exec(t, conn, "select pawl_v1.step_begin('s', 'k', 'mail', sha256('r'), '{\"recovery\": \"at_most_once\", \"provider_key\": \"p\"}')")
	if err := migrate.Check(t.Context(), conn); err != nil {
		t.Fatal(err)
	}
	for _, sequence := range []string{"job_id_seq", "lane_id_seq", "position_seq", "fence_seq"} {
		t.Run(sequence, func(t *testing.T) {
			var before int64
			if err := conn.QueryRow(t.Context(), "select last_value from pawl."+sequence).Scan(&before); err != nil {
				t.Fatal(err)
			}
			exec(t, conn, "select setval('pawl."+sequence+"', 1, false)")
			if err := migrate.Check(t.Context(), conn); !errors.Is(err, pawl.ErrSchemaMismatch) || !strings.Contains(err.Error(), sequence) || !strings.Contains(err.Error(), "pawl migrate up") {
				t.Errorf("got %v", err)
			}
			if _, err := migrate.Up(t.Context(), conn, nil); err != nil {
				t.Fatal(err)
			}
			if err := migrate.Check(t.Context(), conn); err != nil {
				t.Error(err)
			}
			var after int64
			if err := conn.QueryRow(t.Context(), "select nextval('pawl."+sequence+"')").Scan(&after); err != nil || after != before+1 {
				t.Errorf("%d follows %d, %v", after, before, err)
			}
		})
	}
}

// login connects as a login with pawl_app, as in production.
func login(t *testing.T, url string, name string) *pgx.Conn {
	t.Helper()
	config, err := pgx.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	config.User = name
	conn, err := pgx.ConnectConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(t.Context()) })
	return conn
}

const logins = `do $$ begin create role migrate_app login; exception when duplicate_object or unique_violation then null; end $$;
do $$ begin create role migrate_owner login; exception when duplicate_object or unique_violation then null; end $$;
do $$ begin grant pawl_app to migrate_app; exception when unique_violation or internal_error then null; end $$`

// Row level security, which some hosts turn on for every table, hides Pawl's rows from a program:
// it sees no schema, or no jobs. The error names the tables, the role and the next step.
func TestCheck_RowSecurity(t *testing.T) {
	t.Parallel()
	url := empty(t)
	conn := connect(t, url)
	if _, err := migrate.Up(t.Context(), conn, nil); err != nil {
		t.Fatal(err)
	}
	exec(t, conn, schema.Roles())
	exec(t, conn, logins)
	app := login(t, url, "migrate_app")
	for _, c := range []struct {
		name, script string
		hidden       []string // tables that the error names; nil: no error
	}{
		{"off", "select 1", nil},
		{"on one table", "alter table pawl.job enable row level security", []string{"pawl.job "}},
		{"on that of the versions", "alter table pawl.migration enable row level security", []string{"pawl.job", "pawl.migration"}},
		{"with policies that hide nothing", "create policy pawl on pawl.job using (true); create policy pawl on pawl.migration to pawl_app using (true)", nil},
		{"a policy for another role", "drop policy pawl on pawl.migration; create policy pawl on pawl.migration to migrate_owner using (true)", []string{"pawl.migration"}},
		{"a policy that hides", "drop policy pawl on pawl.migration; create policy pawl on pawl.migration using (version < 0)", []string{"pawl.migration"}},
		{"policies for some commands", "drop policy pawl on pawl.migration; create policy r on pawl.migration for select using (true); drop policy pawl on pawl.job; create policy r on pawl.job for select using (true); create policy a on pawl.job for insert with check (true)",
			[]string{"pawl.job "}},
		{"policies for each command", "create policy w on pawl.job for update using (true); create policy d on pawl.job for delete using (true)", nil},
		{"a restrictive one", "create policy less on pawl.job as restrictive using (queue <> 'q')", []string{"pawl.job "}},
	} {
		t.Run(c.name, func(t *testing.T) {
			exec(t, conn, c.script)
			if err := migrate.Check(t.Context(), conn); err != nil {
				t.Errorf("the superuser: %v", err)
			}
			err := migrate.Check(t.Context(), app)
			if c.hidden == nil && err != nil || c.hidden != nil && !errors.Is(err, pawl.ErrSchemaMismatch) {
				t.Fatalf("got %v", err)
			}
			for _, part := range append(c.hidden, "row level security", "migrate_app", "disable row level security", "create policy") {
				if c.hidden != nil && !strings.Contains(err.Error()+" ", part) {
					t.Errorf("no %q in: %v", part, err)
				}
			}
		})
	}
}

// If row level security also applies to the owner, Up says so and does not report a missing schema.
func TestUp_RowSecurityForTheOwner(t *testing.T) {
	t.Parallel()
	url := empty(t)
	conn := connect(t, url)
	exec(t, conn, "do $$ begin create role migrate_owner login; exception when duplicate_object or unique_violation then null; end $$")
	exec(t, conn, "create schema pawl authorization migrate_owner; create schema pawl_v1 authorization migrate_owner")
	owner := login(t, url, "migrate_owner")
	if _, err := migrate.Up(t.Context(), owner, nil); err != nil { // it may not create schemas
		t.Fatal(err)
	}
	exec(t, conn, "alter table pawl.migration enable row level security; alter table pawl.migration force row level security")
	for name, do := range map[string]func() error{
		"up":     func() error { _, err := migrate.Up(t.Context(), owner, nil); return err },
		"down":   func() error { _, err := migrate.Down(t.Context(), owner, 0, nil); return err },
		"status": func() error { _, err := migrate.Status(t.Context(), owner); return err },
		"check":  func() error { return migrate.Check(t.Context(), owner) },
	} {
		if err := do(); !errors.Is(err, pawl.ErrSchemaMismatch) || !strings.Contains(err.Error(), "row level security hides the rows of pawl.migration from role migrate_owner") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The error about a missing privilege names the owner, because pawl_app does not include the
// privilege.
func TestUp_WithoutRights(t *testing.T) {
	t.Parallel()
	url := empty(t)
	conn := connect(t, url)
	exec(t, conn, "do $$ begin create role migrate_meek login; exception when duplicate_object or unique_violation then null; end $$")
	meek := login(t, url, "migrate_meek")
	try := func(what string, err error) {
		if pawl.CodeOf(err) != "42501" || !strings.Contains(err.Error(), "as the owner of the schemas") || strings.Contains(err.Error(), "grant pawl_app") {
			t.Errorf("%s: %v", what, err)
		}
	}
	_, err := migrate.Up(t.Context(), meek, nil)
	try("nothing is there", err)
	if _, err := migrate.Up(t.Context(), conn, nil); err != nil {
		t.Fatal(err)
	}
	_, err = migrate.Up(t.Context(), meek, nil)
	try("it is another's", err)
	_, err = migrate.Down(t.Context(), meek, 0, nil)
	try("down", err)
}

// If the driver reads results as text, bytes must be in hex and times in ISO format. Otherwise a
// worker would claim jobs that it cannot read.
func TestCheck_WhatTheDriverReadsAsText(t *testing.T) {
	t.Parallel()
	url := empty(t)
	conn := connect(t, url)
	if _, err := migrate.Up(t.Context(), conn, nil); err != nil {
		t.Fatal(err)
	}
	modes := []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol}
	asText, simple := modes[3:], modes[4:]
	for _, mode := range modes {
		for _, set := range []struct {
			name, value string
			refused     []pgx.QueryExecMode
		}{
			{"bytea_output", "hex", nil}, {"bytea_output", "escape", asText},
			{"DateStyle", "ISO, DMY", nil}, {"DateStyle", "SQL, DMY", asText}, {"DateStyle", "Postgres, MDY", asText}, {"DateStyle", "German", asText},
			{"IntervalStyle", "sql_standard", nil}, {"IntervalStyle", "postgres_verbose", nil}, {"IntervalStyle", "iso_8601", nil},
			{"client_encoding", "LATIN1", simple}, {"standard_conforming_strings", "off", simple},
		} {
			err := migrate.Check(t.Context(), connectWith(t, url, mode, set.name, set.value))
			if refused := err != nil && strings.Contains(err.Error(), "set "+set.name+" = "); refused != slices.Contains(set.refused, mode) || err != nil && !refused {
				t.Errorf("%s, %s = %s: %v", mode, set.name, set.value, err)
			}
		}
	}
}

func connectWith(t *testing.T, url string, mode pgx.QueryExecMode, name, value string) *pgx.Conn {
	t.Helper()
	config, err := pgx.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	config.DefaultQueryExecMode, config.RuntimeParams[name] = mode, value
	conn, err := pgx.ConnectConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// If the session has a role from the beginning that lacks privileges, the error names that role as
// the cause.
func TestCheck_ARoleOfTheSession(t *testing.T) {
	t.Parallel()
	url := empty(t)
	if _, err := migrate.Up(t.Context(), connect(t, url), nil); err != nil {
		t.Fatal(err)
	}
	err := migrate.Check(t.Context(), connectWith(t, url, pgx.QueryExecModeCacheStatement, "role", "pg_monitor"))
	if pawl.CodeOf(err) != "42501" || !strings.Contains(err.Error(), "SET ROLE") || !strings.Contains(err.Error(), "setting role") {
		t.Error(err)
	}
}

// With any session settings, a migrator creates the same schema or fails with an error that names
// the setting.
func TestUp_AnySessionSettings(t *testing.T) {
	t.Parallel()
	for _, set := range [][3]string{
		{"client_encoding", "LATIN1"}, {"client_encoding", "SQL_ASCII"}, {"standard_conforming_strings", "off"}, {"DateStyle", "SQL, DMY"},
		{"IntervalStyle", "sql_standard"}, {"bytea_output", "escape"}, {"quote_all_identifiers", "on"}, {"search_path", ""},
		{"default_transaction_isolation", "serializable"}, {"check_function_bodies", "off"}, {"plpgsql.extra_errors", "all"},
		{"default_transaction_read_only", "on", "default_transaction_read_only"}, {"statement_timeout", "1ms", "statement timeout"},
	} {
		t.Run(set[0]+"="+set[1], func(t *testing.T) {
			t.Parallel()
			url := empty(t)
			_, err := migrate.Up(t.Context(), connectWith(t, url, pgx.QueryExecModeCacheStatement, set[0], set[1]), nil)
			if err == nil {
				err = migrate.Check(t.Context(), connect(t, url))
			}
			if err != nil && (set[2] == "" || !strings.Contains(err.Error(), set[2])) {
				t.Error(err)
			}
		})
	}
}
