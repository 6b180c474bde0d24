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
select pawl_v1.effect_begin('job/pay', '1@1', 'charge', sha256('p'), '{"policy": "at_most_once", "provider": "stripe", "provider_key": "the-key", "job_id": 1}');
select pawl_v1.effect_end('job/pay', '1@1', 'charge', c.fence, 'ambiguous', null, '{"error": "cut"}') from pawl.effect_call as c;
select pawl_v1.job_fail(1, 1, '{}', '{"unknown": true}')`)
	return db
}

// From a step of which nobody knows to one that is settled, as a person sees it.
func TestEffects_Table(t *testing.T) {
	t.Parallel()
	db := withUnknown(t)
	since := regexp.MustCompile(`\d+s +`) // how long ago that was
	const golden = `SCOPE    KEY  STEP    STATUS   POLICY        PROVIDER  CALLS  IN DOUBT  JOB  SINCE  REFERENCE
job/pay  1@1  charge  unknown  at_most_once  stripe    1      1         1    0s     -
`
	if r := mustPawl(t, db, "effects", "list", "--limit", "1"); since.ReplaceAllString(r.stdout, "0s     ") != golden || r.stderr != "there may be more: raise --limit, or name a --scope\n" {
		t.Errorf("%s%s", r.stdout, r.stderr)
	}
	if r := mustPawl(t, db, "effects", "list", "--provider", "adyen"); r.stdout != "" || r.stderr != "no such steps\n" {
		t.Errorf("%+v", r)
	}
	shown := mustPawl(t, db, "effects", "show", "job/pay", "1@1", "charge").stdout
	for _, part := range []string{"step charge of 1@1 in job/pay", "sent key   the-key", "1, of 1 nobody knows", "ambiguous after", `"error": "cut"`, "changes by hand: 0"} {
		if !strings.Contains(shown, part) {
			t.Errorf("show does not say %q:\n%s", part, shown)
		}
	}
	wantFailure(t, pawl(t, db, "effects", "settle", "job/pay", "1@1", "charge", "landed", "--reason", "r"), 2, "a wrong verdict", "--yes")
	wantFailure(t, pawl(t, db, "effects", "settle", "job/pay", "1@1", "charge", "perhaps", "--reason", "r", "--yes"), 2, "landed, refused, not_landed", "as in")
	wantFailure(t, pawl(t, db, "effects", "settle", "job/pay", "1@1", "refund", "landed", "--reason", "r", "--yes"), 1, "no step refund", "list")
	wantFailure(t, pawl(t, db, "effects", "show", "job/pay", "1@1", "refund"), 1, "no step refund", "list")
	if r := mustPawl(t, db, "effects", "settle", "job/pay", "1@1", "charge", "landed", "--reference", "ch_1", "--reason", "seen", "--yes"); r.stdout != "step charge settled: it is succeeded\n" {
		t.Errorf("%+v", r)
	}
	wantFailure(t, pawl(t, db, "effects", "settle", "job/pay", "1@1", "charge", "landed", "--reason", "r", "--yes"), 1, "step charge is succeeded", "only what is unknown")
	if got := one[string](t, db, "select j.status || ' ' || (select a.verb || ' ' || a.reason from pawl.audit as a) from pawl.job as j"); got != "pending effect_settle seen" {
		t.Error(got)
	}
}

// The documents that scripts read.
func TestEffects_JSON(t *testing.T) {
	t.Parallel()
	db := withUnknown(t)
	type step struct {
		Scope, Key, Step, Status string
		Policy                   string
		Provider                 *string
		ProviderKey              string `json:"provider_key"`
		Reference                *string
		Job                      *int64
		Calls                    int
		InDoubt                  int       `json:"in_doubt"`
		FirstCalledAt            time.Time `json:"first_called_at"`
		LastNotAfter             time.Time `json:"last_not_after"`
		MemoryEndsAt             *string   `json:"memory_ends_at"`
		FailureCode              *string   `json:"failure_code"`
		Failure                  *string
		CreatedAt                time.Time `json:"created_at"`
		UpdatedAt                time.Time `json:"updated_at"`
	}
	p := decode[struct {
		Effects []step
		More    bool
	}](t, mustPawl(t, db, "effects", "list", "--json").stdout)
	if len(p.Effects) != 1 || p.More || p.Effects[0].Status != "unknown" || p.Effects[0].InDoubt != 1 || *p.Effects[0].Job != 1 || p.Effects[0].Reference != nil {
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
		Audit []any
	}](t, mustPawl(t, db, "effects", "show", "job/pay", "1@1", "charge", "--json").stdout)
	if d.ProviderKey != "the-key" || len(d.History) != 1 || *d.History[0].Outcome != "ambiguous" || d.History[0].Detail["error"] != "cut" || d.Audit == nil {
		t.Errorf("%+v", d)
	}
	if r := mustPawl(t, db, "effects", "settle", "job/pay", "1@1", "charge", "not_landed", "--reason", "r", "--yes", "--json"); r.stdout != `{"outcome":"settled","status":"planned","retry_after_ms":null,"hint":null}`+"\n" {
		t.Errorf("%+v", r)
	}
	if r := mustPawl(t, db, "effects", "list", "--json"); r.stdout != `{"effects":[],"more":false}`+"\n" {
		t.Errorf("%+v", r)
	}
}
