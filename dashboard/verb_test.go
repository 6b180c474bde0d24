package dashboard_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	table "github.com/pawl-go/pawl/internal/operator" // operator is a user of these tests
)

// everyState has an object in each state that a verb needs.
const everyState = `
insert into pawl.job (queue, kind, payload, status, fence) values ('q', 'k', '', 'dead_letter', 7);
select pawl_v1.job_enqueue('w', 'k', ''), pawl_v1.job_claim('w', null);
select pawl_v1.job_enqueue('lanes', 'k', '', '{"lane": "a"}');
select f.outcome from pawl_v1.job_claim('lanes', null) as c, lateral pawl_v1.job_fail(c.id, c.fence, '{"error": "e"}', '{"final": true}') as f;
select pawl_v1.queue_set('kept', '{"mode": "paused", "archive": true}', 'ann', 'r');
insert into pawl.schedule (name, every_ms, queue, kind, payload, paused) values ('runs', 1000000, 'q', 'k', '', false), ('stands', 1000000, 'q', 'k', '', true);
insert into pawl.inbox (consumer, key, hash, processed_at) values ('c', 'm', sha256('x'), clock_timestamp());
select pawl_v1.sequence_gate_reset('c', 'r', 41, 'ann', 'r');
do $$
begin
  perform pawl_v1.inbox_claim('c', 'g43', sha256(''));
  perform pawl_v1.sequence_gate_pass('c', 'r', 43, '{"mode": "strict"}');
  perform pawl_v1.sequence_gate_hold('c', 'r', 43, l.job_id) from pawl_v1.inbox_store('c', 'g43', 'held', 'k', '', '{"retry_in_ms": 300000}') as l;
end
$$;
insert into pawl.command (scope, key, hash, expires_at, status) values ('s', 'k', sha256('x'), clock_timestamp() + interval '1 day', 'unknown');
select pawl_v1.step_begin('s', n, 'charge', sha256('p'), '{"recovery": "at_most_once", "provider": "stripe", "provider_key": "p"}') from unnest('{1,2}'::text[]) as n;
select pawl_v1.step_end('s', c.key, 'charge', c.fence, case c.key when '1' then 'ambiguous' else 'refused' end, null, '{"error": "cut"}') from pawl.step_call as c`

// pagesOfThings are the pages of the objects in everyState.
var pagesOfThings = []string{"job?id=1", "job?id=2", "lane?queue=lanes&name=a", "queue?name=q", "queue?name=kept", "schedule?name=runs", "schedule?name=stands",
	"delivery?consumer=c&key=m", "gate?consumer=c&resource=r", "command?scope=s&key=k", "step?scope=s&key=1&step=charge", "step?scope=s&key=2&step=charge"}

// The page of an object links to each verb that it allows. The form carries the state that the page
// showed, and is refused without it. If the object's state is another one now, nothing changes,
// unless the verb cannot replay an effect.
func TestVerbs_AreOfferedAndSayWhatWasSeen(t *testing.T) {
	t.Parallel()
	b := setup(t, "", nil)
	b.exec(everyState)
	for _, v := range table.All() {
		i := slices.IndexFunc(pagesOfThings, func(page string) bool {
			return strings.HasPrefix(page, v.Noun.Name+"?") && strings.Contains(b.get(page).body, "do/"+v.Name+"?")
		})
		if i < 0 {
			t.Errorf("no page leads to %s", v.Name)
			continue
		}
		form := b.linkTo(pagesOfThings[i], v.Name).Query()
		form.Set("mode", "dry")
		for _, f := range v.Inputs {
			switch {
			case len(f.Options) > 0:
				form.Set(f.Name, f.Options[0])
			case f.Type == table.Number:
				form.Set(f.Name, "44")
			}
		}
		if a := b.post("do/"+v.Name, form); a.status != http.StatusOK || !strings.Contains(a.body, "Dry run: nothing was changed") || strings.Contains(a.body, "would be: moved") {
			t.Errorf("%s with %v: %d %s", v.Name, form, a.status, a.body)
		}
		for _, f := range v.Seen {
			seen := form.Get(f.Name)
			form.Del(f.Name)
			if a := b.post("do/"+v.Name, form); seen == "" || (a.status == http.StatusUnprocessableEntity) == f.Optional {
				t.Errorf("%s without %s, which was %q: %d", v.Name, f.Name, seen, a.status)
			}
			form.Set(f.Name, "99")
			if f.Type == table.Time {
				form.Set(f.Name, "none")
			}
			if a := b.post("do/"+v.Name, form); v.Name != "inbox_replay" && !strings.Contains(a.body, "would be: moved") && !strings.Contains(a.body, "would be: refused") {
				t.Errorf("%s of what has moved: %d %s", v.Name, a.status, a.body)
			}
			form.Set(f.Name, seen)
		}
	}
	form := b.linkTo("command?scope=s&key=k", "command_settle").Query()
	form.Set("executed", "not_executed")
	form.Set("ref_id", "17")
	if a := b.post("do/command_settle", form); a.status != http.StatusUnprocessableEntity || !strings.Contains(a.body, "has no result") {
		t.Errorf("a result of what was not executed: %d %s", a.status, a.body)
	}
	if n := one[int](b, "select count(*) from pawl.audit as a where a.actor <> 'ann'"); n != 0 {
		t.Errorf("dry runs left %d records", n)
	}
}
