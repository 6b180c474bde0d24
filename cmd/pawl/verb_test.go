package main

import (
	"testing"

	"github.com/pawl-go/pawl/pawltest"
)

// withVerdicts has command 1 and steps 1 and 2 of unknown outcome.
func withVerdicts(t *testing.T) string {
	t.Helper()
	db := pawltest.URL(t)
	exec1(t, db, `
select pawl_v1.command_claim('s', '1', sha256(''));
select pawl_v1.command_fail('s', '1', c.fence, c.hash, '{"error": "no answer"}', '{"unknown": true}') from pawl.command as c;
select pawl_v1.step_begin('s', n, 'charge', sha256('p'), '{"recovery": "at_most_once", "provider": "stripe", "provider_key": "p"}') from unnest('{1,2}'::text[]) as n;
select pawl_v1.step_end('s', c.key, 'charge', c.fence, 'ambiguous', null, '{"error": "cut"}') from pawl.step_call as c`)
	return db
}

// The verdict of an operator on a command or step is stored completely.
func TestVerbs_StoreTheVerdict(t *testing.T) {
	t.Parallel()
	db := withVerdicts(t)
	fence := func(key string) string {
		return one[string](t, db, "select e.fence::text from pawl.step as e where e.key = '"+key+"'")
	}
	mustPawl(t, db, "commands", "settle", "s", "1", "executed", "--fence", "1", "--result", "{}", "--ref-type", "order", "--ref-id", "17", "--reason", "r", "--yes")
	mustPawl(t, db, "steps", "settle", "s", "1", "charge", "executed", "--fence", fence("1"), "--result", `{"id": 1}`, "--reference", "ch_1", "--reason", "r", "--yes")
	mustPawl(t, db, "steps", "settle", "s", "2", "charge", "refused", "--fence", fence("2"), "--code", "card_declined", "--reason", "r", "--yes")
	for what, want := range map[string]string{
		"select concat_ws(' ', c.status, convert_from(c.result, 'UTF8'), c.result_ref_type, c.result_ref_id) from pawl.command as c":         "succeeded {} order 17",
		"select concat_ws(' ', e.status, convert_from(e.result, 'UTF8'), e.reference) from pawl.step as e where e.key = '1'":                 `succeeded {"id": 1} ch_1`,
		"select concat_ws(' ', e.status, convert_from(e.result, 'UTF8'), e.reference, e.failure_code) from pawl.step as e where e.key = '2'": "failed_final card_declined",
	} {
		if got := one[string](t, db, what); got != want {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
}

// If a row changed since the operator looked at it, a verb changes nothing. An id of 0 means no
// job.
func TestVerbs_ChangeNoRowThatHasMoved(t *testing.T) {
	t.Parallel()
	db := withInbox(t)
	wantFailure(t, pawl(t, db, "inbox", "forget", "orders", "done", "--processed-at", "never", "--reason", "r", "--yes"), 1, "has taken effect since you looked", "pawl inbox show orders done")
	wantFailure(t, pawl(t, db, "inbox", "forget", "orders", "done", "--processed-at", "soon", "--reason", "r", "--yes"), 2, `the value "soon" of --processed-at must be a time`)
	db = withGates(t)
	wantFailure(t, pawl(t, db, "sequence-gates", "release", "orders", "account 7", "--next", "45", "--reason", "r", "--yes"), 1, "has moved since you looked", "pawl sequence-gates list --consumer orders")
	wantFailure(t, pawl(t, db, "sequence-gates", "reset", "orders", "account 7", "50", "--from", "40", "--reason", "r", "--yes"), 1, "has moved since you looked")
	mustPawl(t, db, "sequence-gates", "release", "orders", "account 7", "--next", "44", "--reason", "r", "--yes")
	mustPawl(t, db, "sequence-gates", "reset", "orders", "account 7", "50", "--from", "43", "--reason", "r", "--yes")
	db = withLanes(t)
	wantFailure(t, pawl(t, db, "lanes", "unblock", "orders", "account-17", "--job", "2", "--reason", "r", "--yes"), 1, "job 1 has the turn")
	mustPawl(t, db, "lanes", "unblock", "orders", "account-17", "--job", "0", "--reason", "r", "--yes")
}
