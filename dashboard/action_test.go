package dashboard_test

import (
	"errors"
	"fmt"
	"html"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/dashboard"
	"github.com/pawl-go/pawl/job"
)

// dead enqueues a job and dead-letters it.
func (b *bed) dead() (id int64) {
	b.Helper()
	e, err := job.Enqueue(b.Context(), b.pool, job.Request{Queue: "q", Kind: "k", Payload: []byte(`{"secret": 1}`)})
	if err != nil {
		b.Fatal(err)
	}
	b.exec("update pawl.job as j set status = 'dead_letter', attempts = 25, fence = 7 where j.id = $1", e.ID)
	return e.ID
}

func retry(id, reason, mode string) url.Values {
	return url.Values{"id": {id}, "fence": {"7"}, "reason": {reason}, "mode": {mode}}
}

// A POST with a reason executes an action and records the user's name. A dry run changes nothing.
func TestAction_NeedsAReasonAndLeavesARecord(t *testing.T) {
	t.Parallel()
	b := setup(t, "", nil)
	id := b.dead()
	state := func() string {
		return one[string](b, "select j.status || ' ' || (select count(*) from pawl.audit) from pawl.job as j where j.id = $1", id)
	}
	for _, c := range []struct {
		name   string
		answer answer
		status int
		says   string
		after  string
	}{
		{"ask", b.get("do/job_retry?id=1&fence=7"), http.StatusOK, "becomes due now", "dead_letter 0"},
		{"get executes nothing", b.get("do/job_retry?id=1&fence=7&reason=x&mode=execute"), http.StatusOK, "becomes due now", "dead_letter 0"},
		{"no reason", b.post("do/job_retry", retry("1", " ", "execute")), http.StatusUnprocessableEntity, "Say why", "dead_letter 0"},
		{"dry run", b.post("do/job_retry", retry("1", "", "dry")), http.StatusOK, "would be: retried", "dead_letter 0"},
		{"seen too long ago", b.post("do/job_retry", url.Values{"id": {"1"}, "fence": {"6"}, "reason": {"x"}, "mode": {"execute"}}), http.StatusOK, "Nothing was changed. job 1: refused", "dead_letter 0"},
		{"no job", b.post("do/job_retry", retry("99", "x", "execute")), http.StatusOK, "absent", "dead_letter 0"},
		{"no id", b.post("do/job_retry", retry("seventeen", "x", "execute")), http.StatusUnprocessableEntity, "whole number", "dead_letter 0"},
		{"parameters of the address", b.post("do/job_retry?id=1&fence=7&reason=x&mode=execute", url.Values{}), http.StatusUnprocessableEntity, "whole number", "dead_letter 0"},
		{"a large form", b.post("do/job_retry", retry("1", strings.Repeat("x", 1<<20), "execute")), http.StatusBadRequest, "at most 64.0 KiB", "dead_letter 0"},
		{"no such verb", b.post("do/job_explode", retry("1", "x", "execute")), http.StatusNotFound, "", "dead_letter 0"},
		{"execute", b.post("do/job_retry", retry("1", "the card service is back", "execute")), http.StatusOK, "job 1: retried", "pending 1"},
		{"again", b.post("do/job_retry", retry("1", "the card service is back", "execute")), http.StatusOK, "Nothing was changed", "pending 1"},
	} {
		if c.answer.status != c.status || !strings.Contains(c.answer.body, c.says) {
			t.Errorf("%s: %d, want %d and %q\n%s", c.name, c.answer.status, c.status, c.says, c.answer.body)
		}
	}
	if got := state(); got != "pending 1" {
		t.Errorf("the job and the audit: %s", got)
	}
	if record := one[string](b, "select a.actor || ': ' || a.reason from pawl.audit as a"); record != operator.Name+": the card service is back" {
		t.Errorf("the record says %s", record)
	}
}

// Every verb refuses users who may only read, and requests from other sites.
func TestAction_IsRefused(t *testing.T) {
	t.Parallel()
	b := setup(t, "", nil)
	b.dead()
	readOnly := setup(t, "", func(c *dashboard.Config) { c.Operators = nil })
	unchanged := func(what string) {
		t.Helper()
		if n := one[int](b, "select count(*) from pawl.audit") + one[int](b, "select count(*) from pawl.job as j where j.status <> 'dead_letter'"); n != 0 {
			t.Errorf("%s: something was changed", what)
		}
	}
	for _, verb := range dashboard.Verbs() {
		form := retry("1", "x", "execute")
		for name, a := range map[string]answer{
			"another site":               b.send(http.MethodPost, "do/"+verb, form, "Sec-Fetch-Site", "cross-site"),
			"a sibling's site":           b.send(http.MethodPost, "do/"+verb, form, "Sec-Fetch-Site", "same-site"),
			"another origin":             b.send(http.MethodPost, "do/"+verb, form, "Origin", "https://evil.example"),
			"a read-only dashboard":      readOnly.post("do/"+verb, form),
			"a read-only dashboard, ask": readOnly.get("do/" + verb + "?id=1&name=x&queue=x&consumer=x&scope=x"),
		} {
			if a.status != http.StatusForbidden {
				t.Errorf("%s, %s: %d", verb, name, a.status)
			}
		}
	}
	b.user.MayChange = false
	for _, verb := range dashboard.Verbs() {
		if a := b.post("do/"+verb, retry("1", "x", "execute")); a.status != http.StatusForbidden {
			t.Errorf("%s by a reader: %d", verb, a.status)
		}
	}
	if a := b.get("job?id=1"); strings.Contains(a.body, "do/job_retry") {
		t.Error("a reader is shown a link to an action")
	}
	unchanged("refused actions")
}

// Payloads are shown, redacted, to users with MaySeePayloads. Each time is logged without the
// payload.
func TestPayload_IsClosedByDefault(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	b := setup(t, "", func(c *dashboard.Config) {
		c.Logger = loggerTo(&log)
		c.Redact = func(p dashboard.Payload) []byte { return []byte(strings.ReplaceAll(string(p.Body), "1", "[hidden]")) }
	})
	b.dead()
	a := b.get("payload?id=1")
	if a.status != http.StatusOK || !strings.Contains(a.body, "{&#34;secret&#34;: [hidden]}") {
		t.Errorf("%d %s", a.status, a.body)
	}
	if !strings.Contains(log.String(), "payload shown") || !strings.Contains(log.String(), operator.Name) || strings.Contains(log.String(), "secret") {
		t.Errorf("the log says %s", log.String())
	}
	b.user.MaySeePayloads = false
	if a := b.get("payload?id=1"); a.status != http.StatusForbidden || strings.Contains(a.body, "secret") {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := b.get("job?id=1"); strings.Contains(a.body, "secret") || strings.Contains(a.body, "payload?id") {
		t.Error("the page of a job shows its payload, or leads there")
	}
}

// The dashboard calls Authorize before it answers anything.
func TestAuthorize_DecidesFirst(t *testing.T) {
	t.Parallel()
	refusal := error(&dashboard.Refusal{Status: http.StatusSeeOther, Header: http.Header{"Location": {"/login"}}, Err: errors.New("no session")})
	b := setup(t, "", func(c *dashboard.Config) {
		c.Authorize = func(r *http.Request) (dashboard.User, error) { return dashboard.User{}, refusal }
	})
	for _, address := range []string{"", "jobs", "assets/pawl.css", "payload?id=1", "do/job_retry?id=1", "nothing"} {
		if a := b.get(address); a.status != http.StatusSeeOther || a.header.Get("Location") != "/login" {
			t.Errorf("%s: %d %v", address, a.status, a.header)
		}
	}
	// A Refusal without a reason.
	refusal = &dashboard.Refusal{Status: http.StatusSeeOther, Header: http.Header{"Location": {"/login"}}}
	if a := b.get("jobs"); a.status != http.StatusSeeOther || refusal.Error() == "" {
		t.Errorf("without a reason: %d", a.status)
	}
	refusal = errors.New("the session is over, and this text is not shown")
	if a := b.get("jobs"); a.status != http.StatusForbidden || strings.Contains(a.body, "session") {
		t.Errorf("%d %s", a.status, a.body)
	}
	refusal = nil // and no name
	if a := b.get("jobs"); a.status != http.StatusForbidden {
		t.Errorf("a user without a name: %d", a.status)
	}
}

// Every response has the headers against framing, sniffing, caching and injected code. Refusals
// have them too.
func TestHeaders_OnEveryAnswer(t *testing.T) {
	t.Parallel()
	b := setup(t, "", nil)
	for name, a := range map[string]answer{
		"page": b.get(""), "asset": b.get("assets/pawl.js"), "not found": b.get("nothing"), "bad": b.get("job?id=x"),
		"refused": b.send(http.MethodPost, "do/job_retry", url.Values{}, "Sec-Fetch-Site", "cross-site"),
	} {
		csp := a.header.Get("Content-Security-Policy")
		if !strings.Contains(csp, "default-src 'none'") || !strings.Contains(csp, "frame-ancestors 'none'") || strings.Contains(csp, "unsafe") {
			t.Errorf("%s: Content-Security-Policy: %s", name, csp)
		}
		if a.header.Get("X-Content-Type-Options") != "nosniff" || a.header.Get("X-Frame-Options") != "DENY" || !strings.Contains(a.header.Get("Cache-Control"), "no-store") && name != "asset" {
			t.Errorf("%s: %v", name, a.header)
		}
	}
}

// A dashboard without Authorize does not start.
func TestNew_RefusesToStartWithoutAuthorize(t *testing.T) {
	t.Parallel()
	b := setup(t, "", nil)
	for name, c := range map[string]dashboard.Config{
		"no pool":      {Authorize: func(*http.Request) (dashboard.User, error) { return operator, nil }},
		"no authorize": {Pool: b.pool},
	} {
		if _, err := dashboard.New(c); !errors.Is(err, pawl.ErrArgumentInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// linkTo returns the address of an action from a page.
func (b *bed) linkTo(page, verb string) (address *url.URL) {
	b.Helper()
	body := b.get(page).body
	begin := strings.Index(body, "do/"+verb+"?")
	if begin < 0 {
		b.Fatalf("%s does not lead to %s:\n%s", page, verb, body)
	}
	address, err := url.Parse(html.UnescapeString(body[begin : begin+strings.IndexByte(body[begin:], '"')]))
	if err != nil {
		b.Fatal(err)
	}
	return address
}

// A form that is sent again, or by two operators at once, runs a schedule once. A form from a
// reloaded page runs it again.
func TestAction_RunsAScheduleOnceForEachLook(t *testing.T) {
	t.Parallel()
	b := setup(t, "", nil)
	b.exec("insert into pawl.schedule (name, every_ms, queue, kind, payload) values ('n', 1000000, 'q', 'k', '')")
	for look := 1; look <= 2; look++ {
		form := b.linkTo("schedule?name=n", "schedule_run_now").Query()
		form.Set("mode", "dry")
		if a := b.post("do/schedule_run_now", form); !strings.Contains(a.body, "would be: enqueued") {
			t.Errorf("dry run: %d %s", a.status, a.body)
		}
		form.Set("mode", "execute")
		form.Set("reason", "a customer asks")
		answers := make([]answer, 6)
		var all sync.WaitGroup
		for i := range answers {
			all.Go(func() { answers[i] = b.post("do/schedule_run_now", form) })
		}
		all.Wait()
		done, moved := 0, 0
		for _, a := range answers {
			done += strings.Count(a.body, "schedule n: enqueued.")
			moved += strings.Count(a.body, "Nothing was changed. schedule n: moved.")
		}
		if got := one[string](b, "select format('%s jobs, %s records', (select count(*) from pawl.job), (select count(*) from pawl.audit))"); done != 1 || moved != 5 || got != fmt.Sprintf("%d jobs, %[1]d records", look) {
			t.Errorf("look %d: %d enqueued, %d moved: %s", look, done, moved, got)
		}
	}
	if a := b.post("do/schedule_run_now", url.Values{"name": {"n"}, "mode": {"execute"}, "reason": {"x"}}); a.status != http.StatusUnprocessableEntity {
		t.Errorf("without what was seen: %d", a.status)
	}
}

// A form of a gate without a number is refused if the gate has got a number since.
func TestAction_SetsAGateThatHadNoNumberOnce(t *testing.T) {
	t.Parallel()
	b := setup(t, "", nil)
	b.exec("insert into pawl.sequence_gate (consumer, resource) values ('c', 'r')")
	form := b.linkTo("gate?consumer=c&resource=r", "sequence_gate_reset").Query()
	form.Set("mode", "execute")
	form.Set("reason", "x")
	for i, want := range []string{"c: reset.", "Nothing was changed. sequence gate r of consumer c: moved."} {
		form.Set("to", fmt.Sprint(10-i))
		if a := b.post("do/sequence_gate_reset", form); !strings.Contains(a.body, want) {
			t.Errorf("to %d: %d %s", 10-i, a.status, a.body)
		}
	}
	if last := one[int](b, "select g.last from pawl.sequence_gate as g"); last != 10 {
		t.Errorf("the gate stands at %d", last)
	}
	form = b.linkTo("gate?consumer=c&resource=r", "sequence_gate_reset").Query()
	form.Set("mode", "execute")
	form.Set("reason", "x")
	form.Set("to", "12")
	if a := b.post("do/sequence_gate_reset", form); !strings.Contains(a.body, "c: reset.") {
		t.Errorf("after another look: %d %s", a.status, a.body)
	}
}
