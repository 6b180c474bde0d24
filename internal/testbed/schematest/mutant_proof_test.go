//go:build proof

package schematest_test

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/pawl-go/pawl/pawltest"
)

// An edit replaces a part of a function's source, which must occur exactly once.
type edit struct{ function, old, new string }

// A mutant is one known defect. docs/reference/mutants.md lists all mutants.
type mutant struct {
	name     string
	edits    []edit
	protocol protocol
	level    string // isolation level of the scene; default READ COMMITTED
	scene    string // the scene that finds it; "" for the walk through the protocol
	property string // the property that must be violated
}

// modelled are the mutants of the protocol's model, with the model's names.
var modelled = []mutant{
	{name: "NOSKIP", property: "p_excl", edits: []edit{{"job_claim", "and j.status = 'pending'", "and j.status in ('pending', 'processing')"}}},
	{name: "NOBUMP", property: "p_fence", edits: []edit{{"job_claim", "fence = j.fence + 1", "fence = greatest(j.fence, 1)"}}},
	{name: "NOKEY", property: "p_ext", protocol: protocol{newKeyPerAttempt: true}},
	{name: "MARKNOFENCE", property: "p_fence", edits: []edit{{"job_hold", " or v_fence is distinct from p_fence", ""}}},
	{name: "SPLIT", property: "p_once", protocol: protocol{effectThenEnd: true}},
	{name: "DONEFIRST", property: "p_done", protocol: protocol{endThenEffect: true}},
	{name: "NOFENCE", property: "p_fence", edits: []edit{withoutFence}},
	// Two guards protect the end of a job: its status is checked, and its row is deleted. A second
	// effect needs both removed.
	{name: "NOSTATE", property: "p_once", edits: []edit{rowIsKept, {"job_finish", stateGuard, ""}}},
	// A blind sweep does harm only between two open transactions. It waits for the holder and then
	// overwrites the holder's change.
	{name: "REAPBLIND", property: "p_term", scene: "sweep, cancel", edits: []edit{blindLook, blindWrite}},
	{name: "ACKFIRST", property: "p_loss", protocol: protocol{ackThenRecord: true}},
	{name: "NODEDUP", property: "p_once", edits: []edit{{"job_enqueue", "exit when found;", "exit;"}}},
	{name: "MARKFIRST", property: "p_done", protocol: protocol{markThenCall: true}},
	{name: "ASSUMEFAIL", property: "p_once", protocol: protocol{silenceIsFailure: true}},
}

const stateGuard = "\n                and l.status = 'processing'"

var (
	lockOnly     = edit{"_lanes_enter", "    update pawl.lane as l\n       set ver = l.ver + 1\n     where", "    perform from pawl.lane as l\n     where"}
	withoutFence = edit{"job_finish", "\n                and l.fence = p_fence\n", "\n"}
	rowIsKept    = edit{"job_finish", "delete from pawl.job as j\n",
		"update pawl.job as j\n     set status = 'succeeded', claimed_by = null, lease_expires_at = null\n"}
	blindLook = edit{"job_sweep", "     where j.claimed_by = any (v_gone)\n     order by j.id\n     limit v_limit\n       for update skip locked -- a locked row has a live holder\n",
		"     where j.claimed_by = any (v_gone)\n     limit v_limit\n"}
	blindWrite = edit{"job_sweep", "\n       and j.status = 'processing'\n       and (j.claimed_by = any (v_gone) or j.claimed_by = 0 and j.lease_expires_at < clock_timestamp())", ""}
)

// ours are the mutants that the model cannot express: other verbs and locks.
var ours = []mutant{
	{name: "a dead letter can be finished", property: "p_term", edits: []edit{{"job_finish", stateGuard, ""}}},
	{name: "what was taken back can be finished", property: "p_held", scene: "sweep, finish", edits: []edit{{"job_finish", stateGuard, ""}}},
	{name: "fail without fence", property: "p_fence", scene: "finish, zombie's fail", edits: []edit{{"job_fail", "\n     and j.fence = p_fence\n", "\n"}}},
	{name: "release without fence", property: "p_fence", scene: "finish, zombie's release", edits: []edit{{"job_release", "\n     and j.fence = p_fence;", ";"}}},
	{name: "renew without fence", property: "p_fence", scene: "sweep, claim, renew", edits: []edit{{"job_renew", "\n     and j.fence = p_fence\n", "\n"}}},
	{name: "leave without waiting for a claim", property: "p_loss", scene: "leave, one's own last claim", edits: []edit{
		{"worker_leave", "perform from pawl.worker as w where w.id = p_worker for update;", ""}}},
	{name: "leave ignores what is abandoned", property: "p_charge", scene: "abandon, sweep", edits: []edit{{"worker_leave", "\n       and j.id <> all (v_abandoned)", ""}}},
	{name: "leave does not mark who has abandoned jobs", property: "p_loss", scene: "abandon, sweep", edits: []edit{{"worker_leave", "if not v_left then", "if false then"}}},
	{name: "the sweep charges an attempt for an abandoned job", property: "p_charge", scene: "abandon, sweep", edits: []edit{
		{"job_sweep", "attempts = case when j.claimed_by = any (v_absent || v_left)", "attempts = case when j.claimed_by = any (v_absent)"}}},
	{name: "accept any fence", property: "p_fence", scene: "accept, lower", edits: []edit{{"fence_accept", "\n       and f.fence <= p_fence;", ";"}}},
	{name: "finish many without fence", property: "p_fence", scene: "finish, zombie's finish many", edits: []edit{
		{"job_finish_many", "\n                  and l.fence = g.fence))", "))"}, {"job_finish_many", " and d.fence = g.fence", ""}}},
	{name: "finish many without state", property: "p_held", scene: "finish those still held, sweep", edits: []edit{{"job_finish_many", "l.status = 'processing'\n                  and ", ""}}},
	{name: "a duplicate delivery is processed", property: "p_once", scene: "deliver, same", edits: []edit{{"inbox_claim", "select 'duplicate_ignored'", "select 'processed'"}}},
	{name: "whose a row is counts from the first look", property: "p_answer", scene: "look and store, enqueue", edits: []edit{{"_is_ours", "(p_xmin::text::bigint - v_top) & 4294967295", "-age(p_xmin)"}}},
	{name: "a replay makes a job that owns nothing", property: "p_done", scene: "replay, replay", edits: []edit{{"_replay_store", "  if not found then\n    return null;\n  end if;\n", ""}}},
	{name: "a replay overlooks another", property: "p_done", scene: "replay, replay of the discarded", edits: []edit{{"_replay_store", "\n       and i.job_id = p_seen.job_id;", ";"}}},
	{name: "keys in the order given", property: "p_answer", scene: "enqueue many, reversed, behind another", edits: []edit{
		{"_job_keys_claim", "select distinct on (r.queue collate \"C\", r.key collate \"C\") r.queue", "select r.queue"},
		{"_job_keys_claim", "     order by r.queue collate \"C\", r.key collate \"C\", r.n\n    on conflict", "     order by r.n\n    on conflict"}}},

	{name: "enqueue locks its lane without updating it", property: "p_told", scene: "lane: enqueue, finish of the only one", level: levels[1], edits: []edit{lockOnly}},
	{name: "enqueue does not lock its lane", property: "p_told", scene: "lane: enqueue, finish of the only one", edits: []edit{lockOnly, {"_lanes_enter", "        for no key update;", ";"}}},
	{name: "enqueue takes positions before its lanes", property: "p_order", scene: "lane: enqueue, enqueue many behind it, enqueue", edits: []edit{
		{"job_enqueue_many", "    v_lanes := pawl_v1._lanes_enter(", "    perform setval('pawl.position_seq', nextval('pawl.position_seq') + v_count);\n    v_lanes := pawl_v1._lanes_enter("},
		{"job_enqueue_many", "then nextval('pawl.position_seq') end", "then currval('pawl.position_seq') - v_count + row_number() over (order by o.id) end"}}},
	{name: "enqueue looks for a head only", property: "p_order", scene: "lane: enqueue, finish and enqueue", edits: []edit{{"_lane_is_open", "j.status = 'waiting'", "false"}}},
	{name: "lanes in the order given", property: "p_answer", scene: "lane: enqueue many, reversed, behind another", edits: []edit{{"_lanes_enter", "      order by l.queue, l.name\n        for", "      order by array_position(p_names, l.name)\n        for"}}},
	{name: "promote without looking again", property: "p_answer", scene: "lane: promote, promote, claim", edits: []edit{{"_lanes_advance", "\n             and not exists (select from pawl.job as h where h.lane_id = l.id and h.lane_head)", ""}, {"_lanes_advance", "from locked as k where k.status = 'waiting'", "from locked as k"}}},
	{name: "promote who is not locked", property: "p_order", scene: "lane: cancel of the next aborted, finish", edits: []edit{{"_lanes_advance", "\n           order by j.position\n           limit 1)", "\n           order by j.position\n           limit 1 for update skip locked)"}}},
	{name: "finish promotes no job", property: "p_told", scene: "lane: enqueue, finish", edits: []edit{{"job_finish", "pawl_v1._lanes_free(array[v_lane])", "'{}'::jsonb"}}},
	{name: "finish does not say which lane it skipped", property: "p_told", scene: "lane: enqueue, finish", edits: []edit{{"_lanes_free", "jsonb_build_object('skipped', to_jsonb(v_skipped))", "'{}'::jsonb"}}},
	{name: "a retry becomes head", property: "p_answer", scene: "lane: retry of parked, finish", edits: []edit{{"_lane_again", "set status = 'waiting'", "set status = 'pending', lane_head = true"}}},
	{name: "cancel promotes no job", property: "p_told", scene: "lane: cancel, enqueue", edits: []edit{{"job_cancel", "pawl_v1._lane_freed(v_before.lane_id, v_before.queue)", "'{}'::jsonb"}}},
	{name: "a dead letter gives up its turn under any policy", property: "p_order", scene: "lane: dead letter, enqueue", edits: []edit{{"_lanes_leave", "j.lane_head and l.policy = 'block'", "false"}}},
	{name: "the lane sweep promotes no job", property: "p_frozen", scene: "lane: enqueue, finish", edits: []edit{{"lane_sweep", "v_frozen := v_frozen || v_lane;", "null;"}}},
}

func allMutants() []mutant {
	return slices.Concat(modelled, ours, memoryMutants, openMutants, exchangeMutants, runMutants, ownMutants, orderMutants, scheduleMutants, commandMutants, stepMutants)
}

// Every mutant is found by the property that it violates.
func TestMutants_AreCaught(t *testing.T) {
	t.Parallel()
	for _, m := range allMutants() {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			if got := brokenProperty(m.hunt(t)); got != m.property {
				t.Errorf("found %q, want %s", got, m.property)
			}
		})
	}
}

// Every mutant has a line in docs/reference/mutants.md that names its scene and property.
func TestMutants_AreOnTheirPage(t *testing.T) {
	t.Parallel()
	page := read(t, "../../../docs/reference/mutants.md")
	for _, m := range allMutants() {
		line := regexp.MustCompile(`(?m)^\| ` + regexp.QuoteMeta(m.name) + ` \|.*$`).FindString(page)
		where := "the walk"
		if m.scene != "" {
			where = `"` + m.scene + `"`
		}
		if !strings.Contains(line, "| "+m.property) || !strings.HasSuffix(line, "| "+where+" |") {
			t.Errorf("docs/reference/mutants.md has no line for %s, %s, %s", m.name, m.property, where)
		}
	}
}

// Without a mutation, the walk through all states finds no violation.
func TestMutants_TheUnchangedAreClean(t *testing.T) {
	t.Parallel()
	mutant{}.mustSurvive(t)
}

// Without the fence in job_finish, a check that only counts effects finds nothing wrong in any
// state. A stale attempt finishes in place of the newer one, once. Only the rule that each accepted
// write has the newest fence finds the defect.
func TestMutants_CountingEffectsMissesTheFence(t *testing.T) {
	t.Parallel()
	mutant{edits: []edit{withoutFence}}.mustSurvive(t, "p_fence")
}

// Each guard of NOSTATE alone prevents a second effect.
func TestMutants_TwoGuardsAgainstASecondEffect(t *testing.T) {
	t.Parallel()
	for name, m := range map[string]mutant{
		"the status is tested": {edits: []edit{rowIsKept}},
		"the row is gone":      {edits: []edit{{"job_finish", stateGuard, ""}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m.mustSurvive(t, "p_held", "p_term")
		})
	}
}

// These mutants have no observable effect, because a second guard exists. If a test finds one of
// them, that guard has been removed.
func TestMutants_Equivalent(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		edit   edit
		scenes string // prefix of the names of the scenes that could find it
	}{
		// After the wait, the row is no longer pending.
		"claims wait for each other":   {edit{"job_claim", "for update skip locked", "for update"}, "claim"},
		"sweep looks without locking":  {blindLook, "sweep"},  // its write checks again
		"sweep writes without testing": {blindWrite, "sweep"}, // its check has locked the rows
		// The function does not wait there.
		"hold many in any order": {edit{"job_hold_many", "       order by j.id\n         for update", "         for update"}, "hold many"},
		// The fence allows the tick only once.
		"a tick without its key": {edit{"_schedule_enqueue", "             'key', v_key,\n             'hash', encode(sha256(convert_to(v_key, 'UTF8')), 'hex'),\n", ""}, "schedule"},
		// The snapshot and the lock are within one statement.
		"purge without looking again": {edit{"lane_purge", "\n     and not pawl_v1._lane_is_used(l.id);", ";"}, "lane: purge"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, s := range scenes {
				if !strings.HasPrefix(s.name, c.scenes) {
					continue
				}
				if got := brokenProperty((mutant{edits: []edit{c.edit}, scene: s.name}).hunt(t)); got != "" {
					t.Errorf("%s: found %s", s.name, got)
				}
			}
		})
	}
}

// mustSurvive requires that only the ignored properties are violated in any state.
func (m mutant) mustSurvive(t *testing.T, ignored ...string) {
	t.Helper()
	states, err := m.protocol.explore(t.Context(), m.database(t), func(property string) bool { return !slices.Contains(ignored, property) })
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d states", states)
}

// hunt runs the walk or the scene that must find the mutant.
func (m mutant) hunt(t *testing.T) error {
	t.Helper()
	url := m.database(t)
	var n int
	var err error
	if m.scene == "" {
		n, err = m.protocol.explore(t.Context(), url, func(property string) bool { return property == m.property })
	} else {
		stage := newStage(url)
		defer stage.close()
		n, err = sceneNamed(t, m.scene).explore(t.Context(), stage, cmp.Or(m.level, levels[0]))
	}
	t.Logf("after %d: %v", n, err)
	return err
}

// database returns a database with the edited functions.
func (m mutant) database(t *testing.T) string {
	t.Helper()
	url := pawltest.URL(t, protocolTables)
	conn := connect(t, url)
	for _, e := range m.edits {
		if _, err := conn.Exec(t.Context(), "select play.replace($1::text::regproc, $2, $3)", "pawl_v1."+e.function, e.old, e.new); err != nil {
			t.Fatal(err)
		}
	}
	return url
}

func sceneNamed(t *testing.T, name string) scene {
	t.Helper()
	for _, s := range allScenes() {
		if s.name == name {
			return s
		}
	}
	t.Fatalf("no scene %q", name)
	return scene{}
}
