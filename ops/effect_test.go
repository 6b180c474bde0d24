package ops_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/ops"
)

const (
	callOnce = `select pawl_v1.effect_begin('job/q', '1@1', 'charge', sha256('p'), '{"policy": "at_most_once", "provider": "stripe", "provider_key": "key", "job_id": 1}')`
	callCut  = `select pawl_v1.effect_end('job/q', '1@1', 'charge', c.fence, 'ambiguous', null, '{"error": "cut"}') from pawl.effect_call as c`
)

var charge = ops.EffectID{Scope: "job/q", Key: "1@1", Step: "charge"}

// An unknown step is found, shown with its calls, settled with a record, and then no verdict is taken any more.
func TestEffects_Settle(t *testing.T) {
	t.Parallel()
	b := setup(t)
	settle := func(v ops.Verdict) ops.SettleResult {
		t.Helper()
		by := by
		if by.Fence = 99; b.count("select count(*) from pawl.effect") > 0 {
			by.Fence = int64(b.count("select e.fence from pawl.effect as e"))
		}
		r, err := ops.SettleEffect(t.Context(), b.pool, charge, v, by)
		b.must(err)
		return r
	}
	if r := settle(ops.Verdict{Outcome: "landed"}); r.Outcome != ops.Absent || r.Changed() || r.Hint == "" {
		t.Errorf("%+v", r)
	}
	b.exec(callOnce)
	if r := settle(ops.Verdict{Outcome: "landed"}); r.Outcome != ops.Refused || r.Status != ops.EffectPlanned || !strings.Contains(r.Hint, "next attempt") {
		t.Errorf("%+v", r)
	}
	b.exec(callOnce) // unknown now, while the first call may still be sent
	if r := settle(ops.Verdict{Outcome: "not_landed"}); r.Outcome != ops.Early || r.RetryAfter <= 0 || r.Changed() {
		t.Errorf("%+v", r)
	}
	b.exec(callCut)
	found, err := ops.Effects(t.Context(), b.pool, ops.EffectFilter{Provider: "stripe"})
	if err != nil || len(found) != 1 || found[0].EffectID != charge || found[0].JobID != 1 || found[0].Calls != 1 || found[0].InDoubt != 1 {
		t.Fatalf("%+v, %v", found, err)
	}
	stale, err := ops.Stales(t.Context(), b.pool, "effect", nil)
	if err != nil || len(stale) != 1 || stale[0].Class != "unknown" || stale[0].Key != "1@1" || !strings.Contains(stale[0].Advice, "key") {
		t.Errorf("%+v, %v", stale, err)
	}
	if r := settle(ops.Verdict{Outcome: "landed", Result: `{"id": "ch_1"}`, Reference: "ch_1"}); !r.Changed() || r.Status != ops.EffectSucceeded {
		t.Errorf("%+v", r)
	}
	d, ok, err := ops.ShowEffect(t.Context(), b.pool, charge)
	if err != nil || !ok || d.Reference != "ch_1" || len(d.History) != 1 || d.History[0].Outcome != "ambiguous" ||
		!strings.Contains(string(d.History[0].Detail), "cut") || len(d.Changes) != 1 || d.Changes[0].Actor != by.Actor {
		t.Errorf("%+v, %v, %v", d, ok, err)
	}
	if r := settle(ops.Verdict{Outcome: "landed"}); r.Outcome != ops.Refused || r.Status != ops.EffectSucceeded {
		t.Errorf("%+v", r)
	}
}

// A verdict names the call that it is about: on another one it changes nothing and says which there is.
func TestEffects_AVerdictOnAnOlderCallIsMoved(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(callOnce)
	b.exec(callCut)
	fence := int64(b.count("select e.fence from pawl.effect as e"))
	old := ops.By{Actor: "ann", Reason: "r", Fence: fence + 1}
	if r, err := ops.SettleEffect(t.Context(), b.pool, charge, ops.Verdict{Outcome: "not_landed"}, old); err != nil || r.Outcome != ops.Moved || r.Changed() || r.Fence != fence || r.Hint == "" {
		t.Errorf("%+v, %v", r, err)
	}
	if n := b.count("select count(*) from pawl.effect where status = 'unknown'") + b.count("select count(*) from pawl.audit"); n != 1 {
		t.Error("something changed")
	}
}

// A refused step is asked again under a new key: the stored refusal goes, with a record, and the provider sees a new key.
func TestEffects_AskAgain(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(callOnce)
	by := by
	again := func(dry bool) ops.AgainResult {
		t.Helper()
		by.Fence = int64(b.count("select e.fence from pawl.effect as e"))
		r, err := ops.AskAgain(t.Context(), b.pool, charge, "", dry, by)
		b.must(err)
		return r
	}
	if r := again(false); r.Outcome != ops.Refused || r.Status != ops.EffectPlanned || r.Changed() {
		t.Errorf("what was not refused: %+v", r)
	}
	b.exec(`select pawl_v1.effect_end('job/q', '1@1', 'charge', c.fence, 'refused', null, '{"code": "card_declined", "error": "no money"}') from pawl.effect_call as c`)
	if r := again(true); r.Outcome != ops.WouldRenew || r.Job != 1 || r.Calls != 1 || b.count("select count(*) from pawl.effect where status = 'failed_final'") != 1 {
		t.Errorf("a dry run: %+v", r)
	}
	old := by
	old.Fence++
	if r, err := ops.AskAgain(t.Context(), b.pool, charge, "", false, old); err != nil || r.Outcome != ops.Moved || r.Fence != by.Fence {
		t.Errorf("%+v, %v", r, err)
	}
	r := again(false)
	if !r.Changed() || r.Job != 1 || len(r.ProviderKey) != 36 || !strings.Contains(r.Hint, "retry job 1") {
		t.Errorf("%+v", r)
	}
	d, _, err := ops.ShowEffect(t.Context(), b.pool, charge)
	if err != nil || d.Status != ops.EffectPlanned || d.ProviderKey != r.ProviderKey || d.Failure != "" || len(d.Changes) != 1 || d.Changes[0].Verb != "effect_again" {
		t.Errorf("%+v, %v", d, err)
	}
	if n := b.count(`select count(*) from pawl_v1.effect_begin('job/q', '1@1', 'charge', sha256('p'), '{"policy": "at_most_once", "provider_key": "key"}') as b
 where b.outcome = 'call' and b.provider_key = $1`, r.ProviderKey); n != 1 {
		t.Error("it is not called under the new key")
	}
}

// Pages, and filters.
func TestEffects_Pages(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(`select pawl_v1.effect_begin('s', n::text, 'a', sha256('p'), '{"policy": "keyed", "provider_key": "key"}') from generate_series(1, 5) as n`)
	f := ops.EffectFilter{Limit: 2, Statuses: []ops.EffectStatus{ops.EffectPlanned, ops.EffectUnknown}}
	var keys []string
	for {
		page, err := ops.Effects(t.Context(), b.pool, f)
		b.must(err)
		for _, e := range page {
			keys, f.After = append(keys, e.Key), e.EffectID
		}
		if len(page) < f.Limit {
			break
		}
	}
	if got := strings.Join(keys, ""); got != "12345" {
		t.Errorf("%s", got)
	}
	if one, err := ops.Effects(t.Context(), b.pool, ops.EffectFilter{Scope: "s", Key: "3", Statuses: f.Statuses}); err != nil || len(one) != 1 {
		t.Errorf("%+v, %v", one, err)
	}
	if unknown, err := ops.Effects(t.Context(), b.pool, ops.EffectFilter{}); err != nil || len(unknown) != 0 {
		t.Errorf("%+v, %v", unknown, err)
	}
}

func TestEffects_BadInput(t *testing.T) {
	t.Parallel()
	b := setup(t)
	fenced := by
	fenced.Fence = 1
	from := fenced
	from.From = []ops.Status{ops.StatusPending}
	_, statuses := ops.Effects(t.Context(), b.pool, ops.EffectFilter{Statuses: []ops.EffectStatus{"waiting"}})
	_, limit := ops.Effects(t.Context(), b.pool, ops.EffectFilter{Limit: 1001})
	_, verdict := ops.SettleEffect(t.Context(), b.pool, charge, ops.Verdict{Outcome: "perhaps"}, fenced)
	_, result := ops.SettleEffect(t.Context(), b.pool, charge, ops.Verdict{Outcome: "landed", Result: "{"}, fenced)
	_, narrowed := ops.SettleEffect(t.Context(), b.pool, charge, ops.Verdict{Outcome: "landed"}, from)
	_, unfenced := ops.SettleEffect(t.Context(), b.pool, charge, ops.Verdict{Outcome: "landed"}, by)
	_, again := ops.AskAgain(t.Context(), b.pool, charge, "", false, by)
	_, kind := ops.Stales(t.Context(), b.pool, "lane", nil)
	for what, err := range map[string]error{"statuses": statuses, "limit": limit, "verdict": verdict, "result": result, "from": narrowed, "no fence": unfenced, "again without a fence": again, "kind": kind} {
		if !errors.Is(err, pawl.ErrArgumentInvalid) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, found, err := ops.ShowEffect(t.Context(), b.pool, charge); found || err != nil {
		t.Errorf("%v, %v", found, err)
	}
}
