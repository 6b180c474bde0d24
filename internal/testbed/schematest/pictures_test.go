package schematest_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/internal/testbed/pictures"
)

// A plays is how states of one table change: for each play a script of verbs on a row of its own.
// In SQL, KEY stands for the name of the play.
type plays struct {
	picture pictures.Picture
	table   string
	given   string            // is executed before each play
	verbs   map[string]string // SQL
	scripts []string          // of verbs, separated by blanks
}

// do is a verb that calls a function of the API on the row of the play, or on one behind it.
func do(call, which string) string {
	return "select pawl_v1." + call + " from pawl.job as j where j.kind = 'KEY" + which + "'"
}

// Each job has a worker, a queue and a lane of its own, and another job waits behind it.
var jobPlays = plays{
	picture: pictures.Job, table: "job",
	given: `select pawl_v1.worker_register('KEY'); select pawl_v1.job_enqueue('KEY', 'KEY', '', '{"lane": "KEY"}'), pawl_v1.job_enqueue('KEY', 'KEY-next', '', '{"lane": "KEY"}')`,
	verbs: map[string]string{
		"claim": do("job_claim(j.queue, WORKER)", ""), "claim-id": do("job_claim_id(j.id, WORKER)", ""), "exchange": do("job_exchange('{}', '{}', j.queue, WORKER, 1)", ""),
		"finish": do("job_finish(j.id, j.fence)", ""), "finish-many": do("job_finish_many(array[j.id], array[j.fence])", ""), "exchanged": do("job_exchange(array[j.id], array[j.fence], j.queue, WORKER, 0)", ""),
		"open": `begin; create temp table opened on commit drop as select o.*, j.id, j.fence from pawl.job as j, pawl_v1.job_open(j.id, j.fence) as o where j.kind = 'KEY';
select pawl_v1.job_close(o.id, o.fence, o.outcome, o.xact, o.lane) from opened as o; commit`,
		"batch": do("lane_batch(array[j.id], array[j.fence])", ""), "lane-finish": do("lane_finish(array[j.id], array[j.fence], '{}')", ""),
		"batch-finish": do("lane_finish(array[j.id], array[j.fence], array(select n.id from pawl.job as n where n.kind = 'KEY-next'))", ""),
		"fail":         do("job_fail(j.id, j.fence, '{}')", ""), "fail-final": do(`job_fail(j.id, j.fence, '{}', '{"final": true}')`, ""), "fail-cancel": do(`job_fail(j.id, j.fence, '{}', '{"cancel": true}')`, ""),
		"release": do("job_release(j.id, j.fence)", ""), "orphan": "update pawl.worker set seen_at = now() - interval '1 hour' where name = 'KEY'", "spend": "update pawl.job set attempts = max_attempts where kind = 'KEY'",
		"sweep": "select pawl_v1.job_sweep('{KEY}')", "leave": "select pawl_v1.worker_leave(WORKER)",
		"cancel": do("job_cancel(j.id, 'ann', 'why')", ""), "cancel-next": do("job_cancel(j.id, 'ann', 'why')", "-next"), "cancel-own": do("job_cancel_own(j.id)", ""), "cancel-own-next": do("job_cancel_own(j.id)", "-next"),
		"retry": do("job_retry(j.id, 'ann', 'why')", ""), "retry-next": do("job_retry(j.id, 'ann', 'why')", "-next"), "discard": do("job_discard(j.id, 'ann', 'why')", ""), "discard-next": do("job_discard(j.id, 'ann', 'why')", "-next"),
		"park": "select pawl_v1.lane_policy('KEY', 'KEY', 'park', 'ann', 'why')", "unblock": "select pawl_v1.lane_unblock('KEY', 'KEY', 'ann', 'why')", "no-lane": "update pawl.job set lane_id = null, position = null, lane_head = false where kind = 'KEY'",
		"vanish": "delete from pawl.job where kind = 'KEY'", "promote": do("lane_promote(j.lane_id)", "-next"), "lane-sweep": "select pawl_v1.lane_sweep()",
		"doubt": do(`step_begin('s', 'KEY', 'charge', sha256('p'), jsonb_build_object('recovery', 'at_most_once', 'provider_key', 'k', 'job_id', j.id))`, "") + `;
select pawl_v1.step_end('s', 'KEY', 'charge', e.fence, 'ambiguous') from pawl.step as e where e.key = 'KEY';` + do(`job_fail(j.id, j.fence, '{}', '{"unknown": true}')`, ""),
		"settle": "update pawl.step_call set not_after = now() where key = 'KEY'; select pawl_v1.step_settle('s', 'KEY', 'charge', e.fence, 'not_executed', 'ann', 'why') from pawl.step as e where e.key = 'KEY'",
		"late":   "select pawl_v1.step_end('s', 'KEY', 'charge', e.fence, 'executed') from pawl.step as e where e.key = 'KEY'",
		"store":  "begin; select pawl_v1.inbox_claim('c', 'KEY', sha256('p')); select pawl_v1.inbox_store('c', 'KEY', 'KEY', 'KEY', ''); commit",
		"store-dead": `begin; select pawl_v1.inbox_claim('c', 'KEY', sha256('p')); select pawl_v1.inbox_store('c', 'KEY', 'KEY', 'KEY-stored', '', '{"dead": true}');
select pawl_v1.delivery_keep('c', 'KEY', 'p', jsonb_build_object('hash', encode(sha256('p'), 'hex'), 'stored_as', '{"queue": "KEY", "kind": "KEY"}'::jsonb)); commit`,
		"replay": "select pawl_v1.inbox_replay('c', 'KEY', 'ann', 'why')", "discard-stored": do("job_discard(j.id, 'ann', 'why')", "-stored"),
		"held":   do("sequence_gate_hold_again('c', 'r', 1, 'KEY', j.id)", "") + " and j.lane_id is null",
		"append": "select pawl_v1.outbox_append('KEY', 'T', 'a', '1', ''), pawl_v1.outbox_append('KEY', 'T', 'a', '1', '')", "append-many": "select pawl_v1.outbox_append_many('{KEY,KEY}', '{T,T}', '{a,a}', '{1,1}', '{a,b}')",
		"many": "select pawl_v1.job_enqueue_many('{KEY,KEY}', '{k,k}', '{a,b}', p_options => '{\"lanes\": [\"m\", \"m\"]}')",
		"put":  `select pawl_v1.schedule_put('KEY', 'KEY', 'k', '', '{"every_ms": 1000, "first_at": "2026-01-01"}')`, "tick": "select pawl_v1.schedule_tick('KEY', (select s.fence from pawl.schedule as s where s.name = 'KEY'))",
		"run": "select pawl_v1.schedule_run_now('KEY', 'ann', 'why')",
	},
	scripts: []string{
		"claim finish", "claim finish-many", "claim open", "exchange exchanged", "claim-id lane-finish", "claim batch batch-finish", "claim fail", "claim fail-final retry claim fail-final discard",
		"claim fail-final unblock retry", "park claim fail-final retry", "claim fail-cancel retry", "claim release", "claim orphan sweep", "claim spend orphan sweep", "park claim spend orphan sweep",
		"claim leave", "cancel discard", "claim cancel", "cancel-next retry-next cancel-next discard-next discard", "cancel-own", "claim cancel-own", "cancel-own-next", "discard-next", "no-lane cancel retry",
		"claim doubt settle", "claim doubt late", "vanish promote", "vanish lane-sweep", "store held", "store-dead replay", "store-dead discard-stored replay", "append", "append-many", "many", "put tick run",
	},
}

var commandPlays = plays{
	picture: pictures.Command, table: "command",
	verbs: map[string]string{
		"claim": "select pawl_v1.command_claim('s', 'KEY', sha256('p'))", "late": "update pawl.command set lease_expires_at = now() - interval '1 minute' where key = 'KEY'",
		"succeed": "select pawl_v1.command_succeed('s', 'KEY', c.fence) from pawl.command as c where c.key = 'KEY'", "renew": "select pawl_v1.command_renew('s', 'KEY', c.fence) from pawl.command as c where c.key = 'KEY'",
		"fail": failCommand("{}"), "fail-final": failCommand(`{"final": true}`), "fail-unknown": failCommand(`{"unknown": true}`), "settle": settleCommand("executed"), "settle-not": settleCommand("not_executed"),
		"see":  "select pawl_v1.command_open('s', 'KEY', sha256('p'))",
		"open": openThen("command_close('s', 'KEY', sha256('p'), o.fence, o.xact)"), "open-fail": openThen("command_fail('s', 'KEY', o.fence, sha256('p'), '{}')"),
		"open-final": openThen(`command_fail('s', 'KEY', o.fence, sha256('p'), '{}', '{"final": true}')`), "open-unknown": openThen(`command_fail('s', 'KEY', o.fence, sha256('p'), '{}', '{"unknown": true}')`),
	},
	scripts: []string{
		"claim succeed", "claim fail claim", "claim fail-final", "claim fail-unknown settle", "claim late claim settle-not", "claim late see succeed", "claim fail-unknown fail", "claim fail-unknown fail-final", "claim fail-unknown renew",
		"open", "open-fail open", "open-fail open-final", "open-unknown settle",
	},
}

func failCommand(options string) string {
	return "select pawl_v1.command_fail('s', 'KEY', c.fence, c.hash, '{}', '" + options + "') from pawl.command as c where c.key = 'KEY'"
}

func settleCommand(verdict string) string {
	return "select pawl_v1.command_settle('s', 'KEY', c.fence, '" + verdict + "', 'ann', 'why') from pawl.command as c where c.key = 'KEY'"
}

// openThen opens a command and ends it in the same transaction. command_open writes no row, so the
// play records what it answered, and the end begins from processing.
func openThen(end string) string {
	return `begin; create temp table opened on commit drop as select o.* from pawl_v1.command_open('s', 'KEY', sha256('p')) as o;
insert into public.seen select 'command', case o.outcome when 'new_claim' then '' when 'retryable_failure' then 'failed_retryable' end, 'processing', 'command_open' from opened as o;
set local pawl_test.opened = 'yes'; select pawl_v1.` + end + ` from opened as o; commit`
}

var stepPlays = plays{
	picture: pictures.Step, table: "step",
	verbs: map[string]string{
		"keyed": beginOf("keyed"), "once": beginOf("at_most_once"), "forgotten": "update pawl.step set memory_ends_at = now() where key = 'KEY'",
		"executed": endOf("executed"), "refused": endOf("refused"), "ambiguous": endOf("ambiguous"), "not-sent": endOf("not_sent"),
		"settle": settleOf("executed"), "settle-refused": settleOf("refused"), "settle-not": settleOf("not_executed"),
		"again": "select pawl_v1.step_again('s', 'KEY', 'charge', e.fence, 'ann', 'why') from pawl.step as e where e.key = 'KEY'",
	},
	scripts: []string{
		"once executed", "once refused again", "once ambiguous settle", "once ambiguous settle-refused", "once ambiguous settle-not", "once ambiguous executed", "once ambiguous refused", "once ambiguous not-sent",
		"keyed forgotten keyed",
	},
}

func beginOf(recovery string) string {
	return `select pawl_v1.step_begin('s', 'KEY', 'charge', sha256('p'), '{"recovery": "` + recovery + `", "provider_key": "k"}')`
}

func endOf(outcome string) string {
	return "select pawl_v1.step_end('s', 'KEY', 'charge', e.fence, '" + outcome + "') from pawl.step as e where e.key = 'KEY'"
}

func settleOf(verdict string) string {
	return "update pawl.step_call set not_after = now() where key = 'KEY'; select pawl_v1.step_settle('s', 'KEY', 'charge', e.fence, '" + verdict + "', 'ann', 'why') from pawl.step as e where e.key = 'KEY'"
}

// watch records each change of a status with the function of the API that was called. A row that
// is not there has the status ”.
const watch = `create table public.seen (tab text, before text, after text, made_by text);
create function public.watch() returns trigger language plpgsql as $$
declare v_context text; v_by text;
begin
  get diagnostics v_context = pg_context;
  select m.name[1] into v_by from regexp_matches(v_context, 'function pawl_v1\.(\w+)', 'g') with ordinality as m (name, n) order by m.n desc limit 1;
  insert into public.seen
  values (tg_table_name, case when current_setting('pawl_test.opened', true) = 'yes' then 'processing' when tg_op = 'INSERT' then '' else old.status::text end,
          case when tg_op = 'DELETE' then '' else new.status::text end, v_by);
  return null;
end $$;
create trigger watch after insert or update or delete on pawl.job for each row execute function public.watch();
create trigger watch after insert or update or delete on pawl.command for each row execute function public.watch();
create trigger watch after insert or update or delete on pawl.step for each row execute function public.watch();`

// The arrows of the state diagrams are the changes that the functions of the API make. A change
// that is not drawn is an omission with a reason.
func TestPictures_StatesChangeAsDrawn(t *testing.T) {
	t.Parallel()
	for _, p := range []plays{jobPlays, commandPlays, stepPlays} {
		t.Run(p.table, func(t *testing.T) {
			t.Parallel()
			b := setup(t, watch)
			conn := connect(t, b.url)
			for n, script := range p.scripts {
				key := fmt.Sprintf("%s%d", p.table, n)
				for _, sql := range append([]string{p.given}, p.sql(t, script)...) {
					sql = strings.NewReplacer("WORKER", "(select w.id from pawl.worker as w where w.name = '"+key+"')", "KEY", key).Replace(sql)
					if _, err := conn.Exec(t.Context(), sql); err != nil {
						t.Fatalf("%s: %s: %v", script, sql, err)
					}
				}
			}
			for _, fault := range p.faults(changesOf(t, conn, p.table), changersOf(t, conn, p.table)) {
				t.Error(fault)
			}
		})
	}
}

func (p plays) sql(t *testing.T, script string) (all []string) {
	t.Helper()
	for verb := range strings.FieldsSeq(script) {
		sql, ok := p.verbs[verb]
		if !ok {
			t.Fatalf("no verb %s", verb)
		}
		all = append(all, sql)
	}
	return all
}

// A change is of a row's status, made by a function of the API.
type change struct{ from, to, by string }

func changesOf(t *testing.T, conn *pgx.Conn, table string) map[change]bool {
	t.Helper()
	rows, _ := conn.Query(t.Context(), "select distinct s.before, s.after, s.made_by from public.seen as s where s.tab = $1 and s.before <> s.after and s.made_by is not null", table)
	found, err := pgx.CollectRows(rows, func(r pgx.CollectableRow) (c change, err error) {
		return c, r.Scan(&c.from, &c.to, &c.by)
	})
	if err != nil {
		t.Fatal(err)
	}
	all := map[change]bool{}
	for _, c := range found {
		all[c] = true
	}
	return all
}

// changersOf returns the functions of the API that can change the status of a row of a table,
// directly or through a call.
func changersOf(t *testing.T, conn *pgx.Conn, table string) (names []string) {
	t.Helper()
	rows, _ := conn.Query(t.Context(), "select p.proname::text, regexp_replace(coalesce(pg_get_function_sqlbody(p.oid), p.prosrc), '--[^\n]*', '', 'g') from pg_proc as p where p.pronamespace = 'pawl_v1'::regnamespace")
	type function struct{ Name, Body string }
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[function])
	if err != nil {
		t.Fatal(err)
	}
	direct := regexp.MustCompile(`insert into pawl\.` + table + ` |update pawl\.` + table + ` as \w\s+set status =`)
	if table == "job" {
		direct = regexp.MustCompile(direct.String() + `|delete from pawl\.job `)
	}
	calls := regexp.MustCompile(`pawl_v1\.(\w+)`)
	found := map[string]bool{}
	for before := -1; before < len(found); {
		before = len(found)
		for _, f := range all {
			through := func(m []string) bool { return found[m[1]] }
			if direct.MatchString(f.Body) || slices.ContainsFunc(calls.FindAllStringSubmatch(f.Body, -1), through) {
				found[f.Name] = true
			}
		}
	}
	for name := range found {
		if !strings.HasPrefix(name, "_") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func (p plays) faults(seen map[change]bool, changers []string) (faults []string) {
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	drawn, made, played := map[change]bool{}, map[change]bool{}, map[string]bool{}
	for c := range seen {
		made[change{from: c.from, to: c.to}], played[c.by] = true, true
	}
	for _, l := range p.picture.Lines {
		to := l.To
		// The row is deleted. The archive calls the job succeeded.
		if p.table == "job" && to == "succeeded" {
			to = ""
		}
		drawn[change{from: l.From, to: to}] = true
		for _, by := range l.By {
			if !seen[change{l.From, to, by}] {
				fault("%s makes nothing %s that was %q: it is drawn, and no play shows it", by, l.To, l.From)
			}
		}
	}
	for _, o := range p.picture.Omits {
		if c := (change{from: o.From, to: o.To}); drawn[c] || !made[c] || o.Why == "" {
			fault("the omission from %q to %q is drawn, never happens or has no reason", o.From, o.To)
		} else {
			drawn[c] = true
		}
	}
	for c := range seen {
		if !drawn[change{from: c.from, to: c.to}] {
			fault("%s makes %q what was %q, and no arrow shows it", c.by, c.to, c.from)
		}
	}
	for _, name := range changers {
		if !played[name] {
			fault("%s can change a status, and no play shows it", name)
		}
	}
	slices.Sort(faults)
	return faults
}
