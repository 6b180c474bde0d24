package ops_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/ops"
)

const (
	callOnce = `select pawl_v1.step_begin('job/q', '1@1', 'charge', sha256('p'), '{"recovery": "at_most_once", "provider": "stripe", "provider_key": "key", "job_id": 1}')`
	callCut  = `select pawl_v1.step_end('job/q', '1@1', 'charge', c.fence, 'ambiguous', null, '{"error": "cut"}') from pawl.step_call as c`
)

var charge = ops.StepRef{Scope: "job/q", Key: "1@1", Step: "charge"}

// An unknown step is listed, shown with its calls and settled with an audit record. Then further
// verdicts are refused.
func TestSteps_Settle(t *testing.T) {
	t.Parallel()
	b := setup(t)
	settle := func(v ops.StepVerdict) ops.Result {
		t.Helper()
		charge := charge
		if charge.Fence = 99; b.count("select count(*) from pawl.step") > 0 {
			charge.Fence = int64(b.count("select e.fence from pawl.step as e"))
		}
		r, err := charge.Settle(t.Context(), b.pool, v, by)
		b.must(err)
		return r
	}
	if r := settle(ops.StepVerdict{Outcome: "executed"}); r.Outcome != ops.Absent || r.Changed() || r.Hint == "" {
		t.Errorf("%+v", r)
	}
	b.exec(callOnce)
	if r := settle(ops.StepVerdict{Outcome: "executed"}); r.Outcome != ops.Refused || r.Was != "planned" || !strings.Contains(r.Hint, "next attempt") {
		t.Errorf("%+v", r)
	}
	b.exec(callOnce) // unknown now, while the first call may still be sent
	if r := settle(ops.StepVerdict{Outcome: "not_executed"}); r.Outcome != ops.Early || r.RetryAfter <= 0 || r.Changed() {
		t.Errorf("%+v", r)
	}
	b.exec(callCut)
	page, err := ops.Steps{Provider: "stripe"}.List(t.Context(), b.pool)
	found := page.Rows
	if err != nil || len(found) != 1 || found[0].Step != "charge" || found[0].JobID != 1 || found[0].Calls != 1 || found[0].InDoubt != 1 {
		t.Fatalf("%+v, %v", found, err)
	}
	stale, err := ops.Stales(t.Context(), b.pool, "step", nil)
	if err != nil || len(stale) != 1 || stale[0].Class != "unknown" || stale[0].Key != "1@1" || !strings.Contains(stale[0].Advice, "key") {
		t.Errorf("%+v, %v", stale, err)
	}
	if r := settle(ops.StepVerdict{Outcome: "executed", Result: `{"id": "ch_1"}`, Reference: "ch_1"}); !r.Changed() || r.Now != "succeeded" {
		t.Errorf("%+v", r)
	}
	d, err := charge.Get(t.Context(), b.pool)
	if err != nil || d.Reference != "ch_1" || len(d.History) != 1 || d.History[0].Outcome != "ambiguous" ||
		!strings.Contains(string(d.History[0].Detail), "cut") || len(d.Changes) != 1 || d.Changes[0].Actor != by.Actor {
		t.Errorf("%+v, %v", d, err)
	}
	if r := settle(ops.StepVerdict{Outcome: "executed"}); r.Outcome != ops.Refused || r.Was != "succeeded" {
		t.Errorf("%+v", r)
	}
}

// A verdict names the call it concerns. If there is a newer call, nothing changes, and the result
// names that call.
func TestSteps_AVerdictOnAnOlderCallIsMoved(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(callOnce)
	b.exec(callCut)
	fence := int64(b.count("select e.fence from pawl.step as e"))
	old := charge
	old.Fence = fence + 1
	if r, err := old.Settle(t.Context(), b.pool, ops.StepVerdict{Outcome: "not_executed"}, by); err != nil || r.Outcome != ops.Moved || r.Changed() || r.Fence != fence || r.Hint == "" {
		t.Errorf("%+v, %v", r, err)
	}
	if n := b.count("select count(*) from pawl.step where status = 'unknown'") + b.count("select count(*) from pawl.audit"); n != 1 {
		t.Error("something changed")
	}
}

// A refused step is called again under a new key: the stored refusal is deleted, with an audit
// record.
func TestSteps_AskAgain(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(callOnce)
	charge := charge
	again := func(by ops.By) ops.Result {
		t.Helper()
		charge.Fence = int64(b.count("select e.fence from pawl.step as e"))
		r, err := charge.Again(t.Context(), b.pool, "", by)
		b.must(err)
		return r
	}
	if r := again(by); r.Outcome != ops.Refused || r.Was != "planned" || r.Changed() {
		t.Errorf("what was not refused: %+v", r)
	}
	b.exec(`select pawl_v1.step_end('job/q', '1@1', 'charge', c.fence, 'refused', null, '{"code": "card_declined", "error": "no money"}') from pawl.step_call as c`)
	if r := again(ops.DryRun); r.Outcome != ops.Renewed || !r.DryRun || r.JobID != 1 || r.ProviderKey != "" || b.count("select count(*) from pawl.step where status = 'failed_final'") != 1 {
		t.Errorf("a dry run: %+v", r)
	}
	old := charge
	old.Fence++
	if r, err := old.Again(t.Context(), b.pool, "", by); err != nil || r.Outcome != ops.Moved || r.Fence != charge.Fence {
		t.Errorf("%+v, %v", r, err)
	}
	r := again(by)
	if !r.Changed() || r.JobID != 1 || len(r.ProviderKey) != 36 {
		t.Errorf("%+v", r)
	}
	d, err := charge.Get(t.Context(), b.pool)
	if err != nil || d.Status != ops.StatusPlanned || d.ProviderKey != r.ProviderKey || d.FailureMessage != "" || len(d.Changes) != 1 || d.Changes[0].Verb != "step_again" {
		t.Errorf("%+v, %v", d, err)
	}
	if n := b.count(`select count(*) from pawl_v1.step_begin('job/q', '1@1', 'charge', sha256('p'), '{"recovery": "at_most_once", "provider_key": "key"}') as b
 where b.outcome = 'call' and b.provider_key = $1`, r.ProviderKey); n != 1 {
		t.Error("it is not called under the new key")
	}
}

// Steps are filtered and listed in pages.
func TestSteps_Pages(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(`select pawl_v1.step_begin('s', n::text, 'a', sha256('p'), '{"recovery": "keyed", "provider_key": "key"}') from generate_series(1, 5) as n`)
	f := ops.Steps{Limit: 2, Statuses: []ops.Status{ops.StatusPlanned, ops.StatusUnknown}}
	var keys []string
	for {
		page, err := f.List(t.Context(), b.pool)
		b.must(err)
		for _, e := range page.Rows {
			keys = append(keys, e.Key)
		}
		if f.After = page.Next; f.After == "" {
			break
		}
	}
	if got := strings.Join(keys, ""); got != "12345" {
		t.Errorf("%s", got)
	}
	if one, err := (ops.Steps{Scope: "s", Key: "3", Statuses: f.Statuses}).List(t.Context(), b.pool); err != nil || len(one.Rows) != 1 {
		t.Errorf("%+v, %v", one, err)
	}
	if unknown, err := (ops.Steps{Statuses: []ops.Status{ops.StatusUnknown}}).List(t.Context(), b.pool); err != nil || len(unknown.Rows) != 0 {
		t.Errorf("%+v, %v", unknown, err)
	}
}

func TestSteps_BadInput(t *testing.T) {
	t.Parallel()
	b := setup(t)
	fenced := charge
	fenced.Fence = 1
	_, statuses := ops.Steps{Statuses: []ops.Status{"waiting"}}.List(t.Context(), b.pool)
	_, limit := ops.Steps{Limit: 1001}.List(t.Context(), b.pool)
	_, verdict := fenced.Settle(t.Context(), b.pool, ops.StepVerdict{Outcome: "perhaps"}, by)
	_, result := fenced.Settle(t.Context(), b.pool, ops.StepVerdict{Outcome: "executed", Result: "{"}, by)
	_, unfenced := charge.Settle(t.Context(), b.pool, ops.StepVerdict{Outcome: "executed"}, by)
	_, again := charge.Again(t.Context(), b.pool, "", by)
	_, kind := ops.Stales(t.Context(), b.pool, "lane", nil)
	for what, err := range map[string]error{"statuses": statuses, "limit": limit, "verdict": verdict, "result": result, "no fence": unfenced, "again without a fence": again, "kind": kind} {
		if !errors.Is(err, pawl.ErrArgumentInvalid) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := charge.Get(t.Context(), b.pool); !errors.Is(err, pawl.ErrNotFound) {
		t.Errorf("%v", err)
	}
}
