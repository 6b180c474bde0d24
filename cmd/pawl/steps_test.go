package main

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/pawl-go/pawl/pawltest"
)

// withUnknown has job 1, which waits for a verdict on its step charge.
func withUnknown(t *testing.T) string {
	t.Helper()
	db := pawltest.URL(t)
	exec1(t, db, `
select pawl_v1.job_enqueue('pay', 'payment', ''), pawl_v1.job_claim('pay', null);
select pawl_v1.step_begin('job/pay', '1@1', 'charge', sha256('p'), '{"recovery": "at_most_once", "provider": "stripe", "provider_key": "the-key", "job_id": 1}');
select pawl_v1.step_end('job/pay', '1@1', 'charge', c.fence, 'ambiguous', null, '{"error": "cut"}') from pawl.step_call as c;
select pawl_v1.job_fail(1, 1, '{}', '{"unknown": true}')`)
	return db
}

// An unknown step is listed, shown and settled, in text.
func TestSteps_Table(t *testing.T) {
	t.Parallel()
	db := withUnknown(t)
	since := regexp.MustCompile(`\d+[sm] +`) // the age varies
	const golden = `SCOPE    KEY  STEP    STATUS   FENCE  RECOVERY      PROVIDER  CALLS  IN DOUBT  JOB  SINCE  REFERENCE
job/pay  1@1  charge  unknown  1      at_most_once  stripe    1      1         1    0s     -
`
	if r := mustPawl(t, db, "steps", "list", "--limit", "1"); since.ReplaceAllString(r.stdout, "0s     ") != golden || r.stderr != "" {
		t.Errorf("%s%s", r.stdout, r.stderr)
	}
	if r := mustPawl(t, db, "steps", "list", "--provider", "adyen"); r.stdout != "" || r.stderr != "no such steps: without --status only unknown ones are listed\n" {
		t.Errorf("%+v", r)
	}
	shown := mustPawl(t, db, "steps", "show", "job/pay", "1@1", "charge").stdout
	for _, part := range []string{"step charge of 1@1 in job/pay", "sent key   the-key", "1, of which 1 may or may not have been executed", "ambiguous after", `"error": "cut"`, "changes by hand: 0"} {
		if !strings.Contains(shown, part) {
			t.Errorf("show does not say %q:\n%s", part, shown)
		}
	}
	wantFailure(t, pawl(t, db, "steps", "settle", "job/pay", "1@1", "charge", "executed", "--fence", "1", "--reason", "r"), 2, "a wrong verdict", "--yes")
	wantFailure(t, pawl(t, db, "steps", "settle", "job/pay", "1@1", "charge", "perhaps", "--fence", "1", "--reason", "r", "--yes"), 2, "executed, refused or not_executed", "as in")
	wantFailure(t, pawl(t, db, "steps", "settle", "job/pay", "1@1", "charge", "executed", "--reason", "r", "--yes"), 2, "the attempt that your verdict is about", "--fence", "pawl steps show")
	wantFailure(t, pawl(t, db, "steps", "settle", "job/pay", "1@1", "charge", "executed", "--fence", "7", "--reason", "r", "--yes"), 1, "called again since", "its fence is 1")
	wantFailure(t, pawl(t, db, "steps", "settle", "job/pay", "1@1", "refund", "executed", "--fence", "1", "--reason", "r", "--yes"), 1, "no step refund", "list")
	wantFailure(t, pawl(t, db, "steps", "show", "job/pay", "1@1", "refund"), 1, "no step refund", "list")
	if r := mustPawl(t, db, "steps", "settle", "job/pay", "1@1", "charge", "executed", "--fence", "1", "--reference", "ch_1", "--reason", "seen", "--yes"); r.stdout != "step charge settled: it is succeeded\n" {
		t.Errorf("%+v", r)
	}
	wantFailure(t, pawl(t, db, "steps", "settle", "job/pay", "1@1", "charge", "executed", "--fence", "1", "--reason", "r", "--yes"), 1, "step charge is succeeded", "only an unknown step")
	if got := one[string](t, db, "select j.status || ' ' || (select a.verb || ' ' || a.reason from pawl.audit as a) from pawl.job as j"); got != "pending step_settle seen" {
		t.Error(got)
	}
}

// Scripts read these documents.
func TestSteps_JSON(t *testing.T) {
	t.Parallel()
	db := withUnknown(t)
	type step struct {
		Scope, Key, Step, Status string
		Fence                    int64
		Recovery                 string
		Provider                 *string
		ProviderKey              string `json:"provider_key"`
		Reference                *string
		JobID                    *int64 `json:"job_id"`
		Calls                    int
		InDoubt                  int       `json:"in_doubt"`
		FirstCalledAt            time.Time `json:"first_called_at"`
		LastNotAfter             time.Time `json:"last_not_after"`
		MemoryEndsAt             *string   `json:"memory_ends_at"`
		FailureCode              *string   `json:"failure_code"`
		FailureMessage           *string   `json:"failure_message"`
		ExpiresAt                time.Time `json:"expires_at"`
		ReadAt                   time.Time `json:"read_at"`
		CreatedAt                time.Time `json:"created_at"`
		UpdatedAt                time.Time `json:"updated_at"`
	}
	p := decode[struct {
		Steps     []step
		NextAfter string `json:"next_after"`
	}](t, mustPawl(t, db, "steps", "list", "--json").stdout)
	if len(p.Steps) != 1 || p.NextAfter != "" || p.Steps[0].Status != "unknown" || p.Steps[0].InDoubt != 1 || *p.Steps[0].JobID != 1 || p.Steps[0].Reference != nil {
		t.Errorf("%+v", p)
	}
	d := decode[struct {
		step
		History []struct {
			Fence     int64
			Probe     bool
			StartedAt time.Time `json:"started_at"`
			NotAfter  time.Time `json:"not_after"`
			EndedAt   time.Time `json:"ended_at"`
			Outcome   *string
			Reference *string
			Detail    map[string]any
		}
		Changes []any
	}](t, mustPawl(t, db, "steps", "show", "job/pay", "1@1", "charge", "--json").stdout)
	if d.ProviderKey != "the-key" || len(d.History) != 1 || *d.History[0].Outcome != "ambiguous" || d.History[0].Detail["error"] != "cut" || d.Changes == nil {
		t.Errorf("%+v", d)
	}
	if r := mustPawl(t, db, "steps", "settle", "job/pay", "1@1", "charge", "not_executed", "--fence", "1", "--reason", "r", "--yes", "--json"); r.stdout != `{"outcome":"settled","was":"unknown","now":"planned"}`+"\n" {
		t.Errorf("%+v", r)
	}
	if r := mustPawl(t, db, "steps", "list", "--json"); r.stdout != `{"steps":[]}`+"\n" {
		t.Errorf("%+v", r)
	}
}

// After a declined card, the dead letter says that a retry meets the stored refusal, and which
// command calls again under a new key.
func TestSteps_DeclinedCardIsCalledAgainUnderANewKey(t *testing.T) {
	t.Parallel()
	db := pawltest.URL(t)
	exec1(t, db, `
select pawl_v1.job_enqueue('pay', 'payment', ''), pawl_v1.job_claim('pay', null);
select pawl_v1.step_begin('job/pay', j.id || '@' || (extract(epoch from j.created_at) * 1000000)::bigint, 'charge', sha256('p'), '{"recovery": "keyed", "provider": "stripe", "provider_key": "the-key", "job_id": 1}') from pawl.job as j;
select pawl_v1.step_end(c.scope, c.key, c.step, c.fence, 'refused', null, '{"code": "card_declined", "error": "no money"}') from pawl.step_call as c;
select pawl_v1.job_fail(1, 1, '{"error": "refused: card_declined: no money"}', '{"final": true}')`)
	key := one[string](t, db, "select e.key from pawl.step as e")
	line := "pawl steps again job/pay " + key + " charge --fence 1 --reason"
	for _, args := range [][]string{{"dlq", "show", "1"}, {"steps", "show", "job/pay", key, "charge"}, {"explain", "1"}} {
		if r := mustPawl(t, db, args...); !strings.Contains(r.stdout+r.stderr, line) {
			t.Errorf("%v does not say %q:\n%s", args, line, r.stdout)
		}
	}
	if r := mustPawl(t, db, "stale"); !strings.Contains(r.stdout, "step charge was refused for good, and a retry meets the stored refusal at once") || !strings.Contains(r.stdout, "pawl dlq show 1") {
		t.Error(r.stdout)
	}
	if got := one[string](t, db, "select l.advice from pawl_v1.dead_letters as l"); !strings.Contains(got, "step_again") {
		t.Error(got)
	}
	again := []string{"steps", "again", "job/pay", key, "charge", "--reason", "another card"}
	wantFailure(t, pawl(t, db, append(again, "--yes")...), 2, "the attempt that your verdict is about", "--fence")
	again = append(again, "--fence", "1")
	wantFailure(t, pawl(t, db, again...), 2, "it happens twice", "--yes, or --dry-run")
	if r := mustPawl(t, db, append(again, "--dry-run")...); !strings.Contains(r.stdout, "dry run, nothing changed: step charge is called under a new key") {
		t.Error(r.stdout)
	}
	if r := mustPawl(t, db, append(again, "--yes", "--key", "second-card")...); r.stdout != "step charge is called under the key second-card at the next attempt\nnext: pawl dlq retry 1 --reason …\n" {
		t.Error(r.stdout)
	}
	wantFailure(t, pawl(t, db, append(again, "--yes")...), 1, "step charge is planned", "only a permanently refused step")
	if got := one[string](t, db, "select e.status || ' ' || e.provider_key || ' ' || (select a.verb from pawl.audit as a) from pawl.step as e"); got != "planned second-card step_again" {
		t.Error(got)
	}
}

// A step that comes with another request, as after a change of build, makes a dead letter that no
// retry repairs. Every command that shows it says so, whether a call of the step is in doubt, was
// refused for good, or never made.
func TestDLQ_SaysThatNoRetryRepairsAChangedRequest(t *testing.T) {
	t.Parallel()
	for name, ended := range map[string]string{
		"in doubt": "ambiguous", "refused": "refused", "not sent": "not_sent",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pawltest.URL(t)
			exec1(t, db, `
select pawl_v1.job_enqueue('pay', 'payment', ''), pawl_v1.job_claim('pay', null);
select pawl_v1.step_begin('job/pay', j.id || '@' || (extract(epoch from j.created_at) * 1000000)::bigint, 'charge', sha256('p'), '{"recovery": "keyed", "provider_key": "the-key", "job_id": 1}') from pawl.job as j;
select pawl_v1.step_end(c.scope, c.key, c.step, c.fence, '`+ended+`', null, '{"code": "500", "error": "away"}') from pawl.step_call as c;
select pawl_v1.job_fail(1, 1, '{"code": "P4002", "error": "another request"}', '{"final": true}')`)
			for _, args := range [][]string{{"dlq", "show", "1"}, {"stale"}, {"explain", "1"}} {
				r := mustPawl(t, db, args...)
				if said := r.stdout + r.stderr; !strings.Contains(said, "a retry by the same build meets that again") || !strings.Contains(said, "pawl dlq discard 1 --reason") ||
					strings.Contains(said, "is safe for it") || strings.Contains(said, "dlq retry") {
					t.Errorf("%v:\n%s", args, said)
				}
			}
			if got := one[string](t, db, "select l.advice from pawl_v1.dead_letters as l"); !strings.Contains(got, "meets that again") ||
				strings.Contains(got, "whether the call of step charge (key the-key) took effect") != (name == "in doubt") {
				t.Error(got)
			}
		})
	}
}

// A dead letter whose process died may have called other systems. Every command that shows it says
// so, with the next steps.
func TestDLQ_WarnsOfEffectsBeforeACrash(t *testing.T) {
	t.Parallel()
	db := pawltest.URL(t)
	exec1(t, db, `
select pawl_v1.worker_register('w'), pawl_v1.job_enqueue('pay', 'payment', ''), pawl_v1.job_claim('pay', 1);
select pawl_v1.worker_isolate(1, 1, 1);
update pawl.worker set seen_at = now() - interval '1 hour';
select pawl_v1.job_sweep('{payment}', '{"max_crashes": 1}')`)
	const may = "calls of other systems outside of steps may have been executed"
	for _, args := range [][]string{{"dlq", "show", "1"}, {"stale"}, {"explain", "1"}} {
		if r := mustPawl(t, db, args...); !strings.Contains(r.stdout+r.stderr, may) || !strings.Contains(r.stdout+r.stderr, "died or froze 1 time ") {
			t.Errorf("%v does not say it:\n%s", args, r.stdout)
		}
	}
	if r := mustPawl(t, db, "dlq", "list"); !strings.Contains(r.stderr, "see pawl dlq show ID before you retry") {
		t.Error(r.stderr)
	}
	if got := one[string](t, db, "select l.advice from pawl_v1.dead_letters as l"); !strings.Contains(got, "may have been executed") {
		t.Error(got)
	}
	exec1(t, db, `
select pawl_v1.step_begin('job/pay', j.id || '@' || (extract(epoch from j.created_at) * 1000000)::bigint, 'charge', sha256('p'), '{"recovery": "keyed", "provider_key": "the-key", "job_id": 1}') from pawl.job as j`)
	if r := mustPawl(t, db, "dlq", "show", "1"); !strings.Contains(r.stdout, "charge: planned, 1 call, sent key the-key, of which 1 may have been executed") || !strings.Contains(r.stdout, "Ask the provider for the-key before you discard it") {
		t.Error(r.stdout)
	}
}
