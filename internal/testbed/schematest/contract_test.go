package schematest_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pawl-go/pawl/internal/testbed/pgtest"
	"github.com/pawl-go/pawl/internal/testbed/pgtest/catalogue"
	"github.com/pawl-go/pawl/migrate"
	"github.com/pawl-go/pawl/pawltest"
	"github.com/pawl-go/pawl/schema"
)

// Columns that identify things use collation C. After an upgrade of the operating system's library,
// an index in another collation can miss rows. A deduplication index that misses a row causes a
// silent duplicate.
func TestTables_IdentityIsInCollationC(t *testing.T) {
	t.Parallel()
	pool := pawltest.DB(t)
	rows, _ := pool.Query(t.Context(), `select c.relname || '.' || a.attname
  from pg_attribute as a
  join pg_class as c on c.oid = a.attrelid
  join pg_type as t on t.oid = a.atttypid
  left join pg_collation as l on l.oid = a.attcollation
 where c.relnamespace = 'pawl'::regnamespace
   and c.relkind = 'r'
   and a.attnum > 0
   and coalesce(nullif(t.typbasetype, 0), t.oid) in ('text'::regtype, 'varchar'::regtype, 'bpchar'::regtype)
   and l.collname is distinct from 'C'
 order by 1`)
	loose, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	// Free text that no index or comparison uses.
	if want := []string{"inbox.result_ref", "migration.api_hash", "migration.name"}; !slices.Equal(loose, want) {
		t.Errorf("columns outside collation C: %v, want only %v", loose, want)
	}
}

// The database bounds the octets of every text column in collation C, so that no client can bypass
// the bound.
func TestTables_IdentityIsBounded(t *testing.T) {
	t.Parallel()
	pool := pawltest.DB(t)
	rows, _ := pool.Query(t.Context(), `select c.relname || '.' || a.attname
  from pg_attribute as a
  join pg_class as c on c.oid = a.attrelid
  join pg_collation as l on l.oid = a.attcollation and l.collname = 'C'
 where c.relnamespace = 'pawl'::regnamespace
   and c.relkind = 'r'
   and a.atttypid not in ('pawl.job_status'::regtype, 'pawl.command_status'::regtype, 'pawl.step_status'::regtype,
                          'pawl.step_recovery'::regtype, 'pawl.call_outcome'::regtype) -- closed lists
   and not exists (
     select from pg_constraint as k
      where k.contype = 'c'
        and (k.conrelid = c.oid and pg_get_constraintdef(k.oid) like '%octet_length(' || a.attname || ')%'
          or k.contypid = a.atttypid and pg_get_constraintdef(k.oid) like '%octet_length(VALUE)%'))`)
	unbounded, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	if len(unbounded) > 0 {
		t.Errorf("no bound on %v", unbounded)
	}
}

// CREATE OR REPLACE cannot change a result row (42P13). So the last column of every public function
// is detail jsonb, which leaves room for more results. No function is SECURITY DEFINER, and PUBLIC
// may execute none.
func TestFunctions_KeepTheirShape(t *testing.T) {
	t.Parallel()
	pool := pawltest.DB(t)
	rows, _ := pool.Query(t.Context(), `select p.proname, p.prosecdef, coalesce(p.proargnames[cardinality(p.proargnames)], ''),
       has_function_privilege('pg_monitor', p.oid, 'execute') -- a role without grants: what PUBLIC may
  from pg_proc as p
 where p.pronamespace = 'pawl_v1'::regnamespace`)
	type function struct {
		Name    string
		Definer bool
		Last    string
		Public  bool
	}
	functions, err := pgx.CollectRows(rows, pgx.RowToStructByPos[function])
	if err != nil {
		t.Fatal(err)
	}
	if len(functions) < 10 {
		t.Fatalf("only %d functions", len(functions))
	}
	for _, f := range functions {
		if f.Definer {
			t.Errorf("%s is SECURITY DEFINER", f.Name)
		}
		if f.Public {
			t.Errorf("PUBLIC may execute %s", f.Name)
		}
		if !strings.HasPrefix(f.Name, "_") && f.Last != "detail" {
			t.Errorf("%s ends in column %q, want detail", f.Name, f.Last)
		}
	}
}

// Each verb for which an operator gives a reason names the state that the operator saw, or is
// listed here with the reason why it does not. Otherwise a verdict applies to the state at its
// arrival. Such a verdict once settled a second call, and the customer was charged twice.
func TestVerdicts_NameTheStateSeen(t *testing.T) {
	t.Parallel()
	pool := pawltest.DB(t)
	names := map[string]string{ // the option that names the state; "p_fence": a required argument
		"step_settle": "p_fence", "step_again": "p_fence", "command_settle": "p_fence",
		"job_retry": "fence", "job_cancel": "fence", "job_discard": "fence",
		"lane_unblock": "job", "sequence_gate_reset": "from", "sequence_gate_release": "next_held", "inbox_forget": "processed_at",
	}
	exempt := map[string]string{
		"inbox_replay":     "goes through the inbox and job_retry: what took effect is not touched, whenever it did",
		"lane_policy":      "a setting: it says nothing of what happened",
		"queue_set":        "a setting",
		"schedule_pause":   "a setting",
		"schedule_resume":  "a setting",
		"schedule_run_now": "asks for one run more, whatever ran before",
		"purge_audit":      "records what was deleted by age, and changes nothing itself",
		"schedule_delete":  "ends what the name stands for; its jobs stay",
	}
	rows, _ := pool.Query(t.Context(), `select p.proname::text, coalesce(p.proargnames, '{}')::text[], p.prosrc
  from pg_proc as p
 where p.pronamespace = 'pawl_v1'::regnamespace
   and p.proname not like '\_%'
   and 'p_reason' = any (p.proargnames)`)
	type verb struct {
		Name string
		Args []string
		Body string
	}
	verbs, err := pgx.CollectRows(rows, pgx.RowToStructByPos[verb])
	if err != nil || len(verbs) != len(names)+len(exempt) {
		t.Errorf("%d verbs, %v: one is neither fenced nor exempt, or is gone", len(verbs), err)
	}
	for _, v := range verbs {
		option := names[v.Name]
		fenced := option != "" && (slices.Contains(v.Args, option) || regexp.MustCompile(`_check_options\(p_options, '\{[a-z_,]*\b`+option+`\b`).MatchString(v.Body))
		if (exempt[v.Name] == "") != fenced {
			t.Errorf("%s does not name the state that was seen, and is not listed with a reason", v.Name)
		}
	}
}

// Each SQLSTATE of ours that the functions raise is in the registry, and the generated files are up
// to date with it.
func TestSQLStates_AreRegistered(t *testing.T) {
	t.Parallel()
	registry, err := os.ReadFile("../../../schema/sqlstates.csv")
	if err != nil {
		t.Fatal(err)
	}
	raised := regexp.MustCompile(`errcode = '(\w+)'`).FindAllStringSubmatch(schema.API(), -1)
	if len(raised) < 10 {
		t.Fatalf("found only %d raises", len(raised))
	}
	for _, r := range raised {
		if !slices.Contains([]string{"25000", "25006", "2D000", "40001", "55P03"}, r[1]) && !strings.Contains(string(registry), "\n"+r[1]+",") {
			t.Errorf("SQLSTATE %s is not in sqlstates.csv", r[1])
		}
	}
}

func TestGenerated_IsCurrent(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "schema"), 0o755); err != nil {
		t.Fatal(err)
	}
	copyFile(t, "../../../schema/sqlstates.csv", filepath.Join(root, "schema", "sqlstates.csv"))
	generate := exec.Command("go", "run", "./schema/internal/gen/sqlstates", root)
	generate.Dir = "../../.."
	if out, err := generate.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, name := range []string{"codes_gen.go", "docs/reference/errors.md"} {
		if read(t, filepath.Join(root, name)) != read(t, filepath.Join("../../..", name)) {
			t.Errorf("%s is stale: run go generate in the module's root", name)
		}
	}
	files, err := migrate.Files(migrate.Plain, 0, migrate.Numbering{})
	if err != nil {
		t.Fatal(err)
	}
	if files[0].Text != read(t, "../../../schema/dist/pawl.sql") {
		t.Error("dist/pawl.sql is stale: run go generate in schema/")
	}
}

// dist/pawl.sql creates the same catalogue as the migrations.
func TestDist_EqualsMigrations(t *testing.T) {
	t.Parallel()
	byMigrations := schemaOf(t, pawltest.URL(t))
	empty := pgtest.URL(t, pgtest.Template{Name: "empty"})
	exec1(t, empty, read(t, "../../../schema/dist/pawl.sql"))
	byDist := schemaOf(t, empty)
	if differ := catalogue.Difference(byMigrations, byDist); len(differ) > 0 {
		t.Errorf("dist and migrations differ:\n%s", strings.Join(differ, "\n"))
	}
}

// The roles script can run twice, and grants each role exactly what it needs.
func TestRoles_PrivilegeMatrix(t *testing.T) {
	t.Parallel()
	pool := pawltest.DB(t, schema.Roles(), schema.Roles())
	const one = "select pawl_v1.job_enqueue('q', 'k', 'a'); "
	const planStep = `select pawl_v1.step_begin('s', 'k', 'c', sha256('x'), '{"recovery": "at_most_once", "provider_key": "key"}')`
	const putS = "select pawl_v1.schedule_put('s', 'q', 'k', 'a', '{\"every_ms\": 1000, \"first_at\": \"2026-01-01\"}'); "
	for _, c := range []struct {
		role, statement string
		allowed         bool
	}{
		{"pawl_app", "select pawl_v1.inbox_claim('c', 'm', sha256('x'))", true},
		{"pawl_app", "select pawl_v1.job_enqueue('q', 'k', 'a', '{\"key\": \"1\"}')", true},
		{"pawl_app", "select pawl_v1.worker_register('w'); select pawl_v1.worker_heartbeat(1, '{\"report\": {}}')", true},
		{"pawl_app", "select pawl_v1.consumer_report('c', 1000), pawl_v1.inbox_purge('c', 1209600000)", true},
		{"pawl_reader", "select * from pawl.consumer, pawl_v1.purge_count('inbox', '{\"consumer\": \"c\", \"older_than_ms\": 1209600000}')", true},
		{"pawl_reader", "select pawl_v1.consumer_report('c', 1000)", false},
		{"pawl_app", "select pawl_v1.purge_audit('command', null, 'a', 'r')", false},
		{"pawl_operator", "select pawl_v1.purge_audit('command', null, 'a', 'r'), pawl_v1.purge_audit('command', 1, 'a', 'r')", true},
		{"pawl_app", "select version from pawl.migration", true},
		{"pawl_app", "select pawl_v1.command_claim('s', 'k', sha256('x')); select pawl_v1.command_fail('s', 'k', fence, hash, '{}') from pawl.command", true},
		{"pawl_app", "select pawl_v1.command_succeed('s', 'k', fence) from pawl.command; select pawl_v1.command_purge(), pawl_v1.command_replayed('{s}', '{1}')", true},
		{"pawl_app", "select c.outcome from pawl_v1.command_open('s', 'k', sha256('x')) as o, pawl_v1.command_close('s', 'k', sha256('x'), o.fence, o.xact) as c", true},
		{"pawl_app", "select pawl_v1.command_settle('s', 'k', 1, 'executed', 'a', 'r')", false},
		{"pawl_operator", "select pawl_v1.command_claim('s', 'k', sha256('x')); select pawl_v1.command_fail('s', 'k', fence, hash, '{}', '{\"unknown\": true}') from pawl.command; select pawl_v1.command_settle('s', 'k', fence, 'executed', 'a', 'r') from pawl.command", true},
		{"pawl_app", planStep + "; select pawl_v1.step_end('s', 'k', 'c', fence, 'executed') from pawl.step; select pawl_v1.step_purge(), pawl_v1.stale_classify()", true},
		{"pawl_app", "select pawl_v1.step_settle('s', 'k', 'c', 1, 'executed', 'a', 'r')", false},
		{"pawl_app", "select pawl_v1.step_again('s', 'k', 'c', 1, 'a', 'r')", false},
		{"pawl_operator", "select pawl_v1.step_again('s', 'k', 'c', 1, 'a', 'r')", true},
		{"pawl_operator", planStep + "; select pawl_v1.step_end('s', 'k', 'c', fence, 'ambiguous') from pawl.step; select pawl_v1.step_settle('s', 'k', 'c', fence, 'executed', 'a', 'r') from pawl.step", true},
		{"pawl_reader", "select pawl_v1._audit_target('step', 's', 'k', 'c'), e.* from pawl_v1.steps as e, pawl.step_call, pawl_v1.stale_classify()", true},
		{"pawl_reader", `select pawl_v1.explain('k'), pawl_v1.explain('k', '{"scope": "s"}')`, true},
		{"pawl_reader", planStep, false},
		{"pawl_reader", "select * from pawl_v1.stale_commands, pawl_v1.suppression_by_scope", true},
		{"pawl_reader", "select pawl_v1.command_claim('s', 'k', sha256('x'))", false},
		{"pawl_app", "select pawl_v1.inbox_forget('c', 'm', 'a', 'r')", false},
		{"pawl_operator", "select pawl_v1.inbox_claim('c', 'm', sha256('x')); select pawl_v1.inbox_forget('c', 'm', 'a', 'r')", true},
		{"pawl_app", "select pawl_v1.inbox_replay('c', 'm', 'a', 'r')", false},
		{"pawl_operator", "select pawl_v1.inbox_replay('c', 'm', 'a', 'r')", true},
		{"pawl_reader", "select * from pawl_v1.gates", true},
		{"pawl_app", putS + "select pawl_v1.schedule_tick('s', (select s.fence from pawl_v1.schedules as s))", true},
		{"pawl_app", putS + putS, true},
		{"pawl_app", "select pawl_v1.schedule_pause('s', 'a', 'r')", false},
		{"pawl_app", "select pawl_v1.schedule_resume('s', 'a', 'r')", false},
		{"pawl_app", "select pawl_v1.schedule_run_now('s', 'a', 'r')", false},
		{"pawl_app", "select pawl_v1.schedule_delete('s', 'a', 'r')", false},
		{"pawl_app", "delete from pawl.schedule", false},
		{"pawl_operator", putS + "select pawl_v1.schedule_pause('s', 'a', 'r'); select pawl_v1.schedule_resume('s', 'a', 'r')", true},
		{"pawl_operator", putS + "select pawl_v1.schedule_run_now('s', 'a', 'r'); select pawl_v1.schedule_delete('s', 'a', 'r')", true},
		{"pawl_app", "select pawl_v1.queue_set('q', '{\"mode\": \"paused\"}', 'a', 'r')", false},
		{"pawl_operator", "select pawl_v1.queue_set('q', '{\"mode\": \"paused\"}', 'a', 'r'); select pawl_v1.job_claim('q', null)", true},
		{"pawl_reader", "select * from pawl_v1.schedules, pawl_v1.queues", true},
		{"pawl_reader", "select pawl_v1.schedule_tick('s', 1)", false},
		{"pawl_app", "truncate pawl.inbox", false},
		{"pawl_app", "drop table pawl.inbox", false},
		{"pawl_app", "delete from pawl.migration", false},
		{"pawl_app", "select pawl_v1.job_retry(1, 'a', 'r')", false},
		{"pawl_app", "select pawl_v1.job_cancel(1, 'a', 'r')", false},
		{"pawl_app", "select pawl_v1.job_discard(1, 'a', 'r')", false},
		{"pawl_app", "select pawl_v1.job_recall(1)", false},
		{"pawl_app", one + "select pawl_v1.job_reschedule(id, 0), pawl_v1.job_cancel_own(id) from pawl.job", true},
		{"pawl_reader", "select pawl_v1.job_cancel_own(1)", false},
		{"pawl_operator", "select pawl_v1.job_recall(1)", true},
		{"pawl_app", "insert into pawl.audit (actor, verb, target, reason, before) values ('a', 'v', 't', 'r', '{}')", false},
		{"pawl_operator", "select pawl_v1.job_sweep('{}')", true},
		{"pawl_operator", one + "select pawl_v1.job_cancel(id, 'a', 'r') from pawl.job", true},
		{"pawl_operator", one + "select pawl_v1.job_retry(id, 'a', 'r') from pawl.job", true},
		{"pawl_operator", one + "select pawl_v1.job_discard(id, 'a', 'r') from pawl.job", true},
		{"pawl_operator", "select * from pawl.audit", true},
		{"pawl_operator", "update pawl.audit set reason = 'another'", false},
		{"pawl_operator", "delete from pawl.audit", false},
		{"pawl_reader", "select * from pawl_v1.jobs, pawl_v1.hot_retries, pawl.audit", true},
		{"pawl_reader", "select pawl_v1.job_retry(1, 'a', 'r')", false},
		{"pawl_reader", "select * from pawl_v1.dead_letters", true},
		{"pawl_reader", "select * from pawl.job", true},
		{"pawl_reader", "delete from pawl.job", false},
		{"pawl_reader", "select pawl_v1.job_enqueue('q', 'k', 'a')", false},
		{"pg_monitor", "select * from pawl.job", false},
	} {
		tx, err := pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_, err = tx.Exec(t.Context(), "set local role "+c.role)
		if err == nil {
			// The statement may consist of several.
			_, err = tx.Exec(t.Context(), c.statement, pgx.QueryExecModeSimpleProtocol)
		}
		var pg *pgconn.PgError
		switch {
		case c.allowed && err != nil:
			t.Errorf("%s: %s: %v", c.role, c.statement, err)
		case !c.allowed && (!asPgError(err, &pg) || pg.Code != "42501"):
			t.Errorf("%s may %s (%v)", c.role, c.statement, err)
		}
		_ = tx.Rollback(context.WithoutCancel(t.Context()))
	}
}

// A misspelt or out-of-range option is refused, not ignored.
func TestFunctions_RefuseBadArguments(t *testing.T) {
	t.Parallel()
	pool := pawltest.DB(t)
	long := strings.Repeat("k", 256)
	const closing = "select pawl_v1.command_close('s', 'k', sha256('x'), o.fence, o.xact, "
	for statement, code := range map[string]string{
		"select pawl_v1.inbox_claim('', 'm', sha256('x'))":                                                            "P4000",
		"select pawl_v1.inbox_claim(null, 'm', sha256('x'))":                                                          "P4000",
		"select pawl_v1.inbox_claim('c', '', sha256('x'))":                                                            "P4001",
		"select pawl_v1.inbox_claim('c', '" + long + "', sha256('x'))":                                                "P4001",
		"select pawl_v1.inbox_claim('c', 'm', 'short')":                                                               "P4003",
		"select pawl_v1.inbox_claim('c', 'm', sha256('x'), '{\"resultref\": 1}')":                                     "P4004",
		"select pawl_v1.inbox_claim('c', 'm', sha256('x'), '[]')":                                                     "P4004",
		"select pawl_v1.job_enqueue('q', 'k', 'a', '{\"priority\": 5}')":                                              "P4004",
		"select pawl_v1.job_enqueue('q', 'k', 'a', '{\"priority\": \"high\"}')":                                       "P4004",
		"select pawl_v1.job_enqueue('q', 'k', null)":                                                                  "P4004",
		"select pawl_v1.job_enqueue('q', 'k', decode(repeat('00', 4194305), 'hex'))":                                  "P4004",
		"select pawl_v1.job_enqueue('q', 'k', 'a', '{\"key\": \"" + long + "\"}')":                                    "P4001",
		"select pawl_v1.job_enqueue('q', 'k', 'a', '{\"key\": \"1\", \"hash\": \"00\"}')":                             "P4003",
		"select pawl_v1.job_claim('q', 1, 0)":                                                                         "P4004",
		"select pawl_v1.job_claim('q', 1, 501)":                                                                       "P4004",
		"select pawl_v1.job_claim('q', 1, 1)":                                                                         "P4020",
		"select pawl_v1.worker_register('w', '100 ms')":                                                               "P4004",
		"select pawl_v1.worker_heartbeat(1, '{\"report\": []}')":                                                      "P4004",
		"select pawl_v1.job_retry(1, '', 'r')":                                                                        "P4004",
		"select pawl_v1.job_cancel(1, 'a', null)":                                                                     "P4004",
		"select pawl_v1.job_discard(1, 'a', 'r', '{\"from\": [\"dead\"]}')":                                           "P4004",
		"select pawl_v1.job_discard(1, 'a', 'r', '{\"form\": []}')":                                                   "P4004",
		"select pawl_v1.job_finish(1, 1)":                                                                             "P4020",
		"select pawl_v1.inbox_reserve('', 'k', sha256(''), 1)":                                                        "P4000",
		"select pawl_v1.inbox_reserve('c', '', sha256(''), 1)":                                                        "P4001",
		"select pawl_v1.inbox_reserve('c', 'k', 'short', 1)":                                                          "P4003",
		"select pawl_v1.inbox_reserve('c', 'k', sha256(''), null)":                                                    "P4004",
		"select pawl_v1.inbox_settle('c', 'm', 1)":                                                                    "P4020",
		"select pawl_v1.command_claim('', 'k', sha256('x'))":                                                          "P4000",
		"select pawl_v1.command_claim('s', null, sha256('x'))":                                                        "P4001",
		"select pawl_v1.command_claim('s', '" + long + "', sha256('x'))":                                              "P4001",
		"select pawl_v1.command_claim('s', 'k', 'short')":                                                             "P4003",
		"select pawl_v1.command_claim('s', 'k', sha256('x'), '{\"lease\": 1}')":                                       "P4004",
		"select pawl_v1.command_claim('s', 'k', sha256('x'), '{\"lease_ms\": 1}')":                                    "P4004",
		"select pawl_v1.command_claim('s', 'k', sha256('x'), '{\"retention_ms\": 0}')":                                "P4004",
		"select pawl_v1.command_open('', 'k', sha256('x'))":                                                           "P4000",
		"select pawl_v1.command_open('s', null, sha256('x'))":                                                         "P4001",
		"select pawl_v1.command_open('s', 'k', 'short')":                                                              "P4003",
		"select pawl_v1.command_open('s', 'k', null)":                                                                 "P4003",
		"select pawl_v1.command_open('s', 'k', sha256('x'), null, '{\"wait\": 1}')":                                   "P4004",
		"select pawl_v1.command_open('s', 'k', sha256('x'), null, null)":                                              "P4004",
		"select pawl_v1.command_close('s', 'k', sha256('x'), 1, null)":                                                "25000",
		"select pawl_v1.command_close('s', 'k', sha256('x'), null, '1 1')":                                            "25000",
		closing + "'r', 'b', '{\"response_status\": 1}') from pawl_v1.command_open('s', 'k', sha256('x')) as o":       "P4004",
		closing + "'r', 'b', '{\"retention_ms\": 1}') from pawl_v1.command_open('s', 'k', sha256('x')) as o":          "P4004",
		closing + "'r', 'b', '{\"response_headers\": 1}') from pawl_v1.command_open('s', 'k', sha256('x')) as o":      "P4004",
		closing + "'r', 'b', '{\"status\": 1}') from pawl_v1.command_open('s', 'k', sha256('x')) as o":                "P4004",
		closing + "'r', 'b', null) from pawl_v1.command_open('s', 'k', sha256('x')) as o":                             "P4004",
		closing + "decode(repeat('00', 4194305), 'hex')) from pawl_v1.command_open('s', 'k', sha256('x')) as o":       "P4004",
		closing + "null, decode(repeat('00', 4194305), 'hex')) from pawl_v1.command_open('s', 'k', sha256('x')) as o": "P4004",
		"select pawl_v1.command_succeed('s', 'k', 1)":                                                                 "P4020",
		"select pawl_v1.command_succeed('s', 'k', null)":                                                              "P4020",
		"select pawl_v1.command_succeed('s', 'k', 1, decode(repeat('00', 4194305), 'hex'))":                           "P4004",
		"select pawl_v1.command_succeed('s', 'k', 1, p_options => '{\"response_headers\": 1}')":                       "P4004",
		"select pawl_v1.command_hold('s', 'k', 1)":                                                                    "P4020",
		"select pawl_v1.command_renew('s', 'k', 1)":                                                                   "P4020",
		"select pawl_v1.command_fail('s', 'k', 99, sha256('x'), '{}')":                                                "P4004",
		"select pawl_v1.command_settle('s', 'k', 1, 'perhaps', 'a', 'r')":                                             "P4004",
		"select pawl_v1.command_settle('s', 'k', 1, 'executed', '', 'r')":                                             "P4004",
		"select pawl_v1.command_settle('s', 'k', null, 'executed', 'a', 'r')":                                         "P4004",
		"select pawl_v1.step_settle('s', 'k', 'c', null, 'executed', 'a', 'r')":                                       "P4004",
		"select pawl_v1.step_again('s', 'k', 'c', null, 'a', 'r')":                                                    "P4004",
		"select pawl_v1.command_replayed('{s}', '{}')":                                                                "P4004",
	} {
		_, err := pool.Exec(t.Context(), statement)
		var pg *pgconn.PgError
		if !asPgError(err, &pg) || pg.Code != code {
			t.Errorf("%.80s: %v, want %s", statement, err, code)
		}
	}
}
