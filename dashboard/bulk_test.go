package dashboard_test

import (
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/pawl-go/pawl/internal/testbed/patience"
)

// All dead letters of a filter are retried except those that may take effect twice. A page shows
// the progress.
func TestBulk_RetriesAFilterAndLeavesDoublesOut(t *testing.T) {
	t.Parallel()
	b := setup(t, "/p", nil)
	b.exec(`insert into pawl.job (queue, kind, payload, status, last_errors)
select 'q' || g % 2, 'k', 'x', 'dead_letter', jsonb_build_array(jsonb_build_object('at', clock_timestamp(), 'attempt', 1, 'code', case when g % 10 = 0 then 'mismatch' end, 'error', 'boom'))
  from generate_series(1, 2000) as g`)
	list := b.get("dead-letters?queue=q0")
	if !strings.Contains(list.body, "all/retry?queue=q0") {
		t.Fatal(list.body)
	}
	if a := b.get("all/retry?queue=q0"); !strings.Contains(a.body, "1,000 dead letters are selected now") || !strings.Contains(a.body, "200 of them may take effect a second time") {
		t.Error(a.body)
	}
	if a := b.post("all/retry", url.Values{"queue": {"q0"}, "mode": {"execute"}}); a.status != http.StatusUnprocessableEntity {
		t.Errorf("without a reason: %d", a.status)
	}
	a := b.post("all/retry", url.Values{"queue": {"q0"}, "mode": {"execute"}, "reason": {"fixed"}})
	if a.status != http.StatusSeeOther {
		t.Fatalf("%d %s", a.status, a.body)
	}
	place, err := url.Parse(b.url + "all/retry")
	if err != nil {
		t.Fatal(err)
	}
	progress, err := place.Parse(a.header.Get("Location"))
	if err != nil {
		t.Fatal(err)
	}
	patience.Until(t, "the retry has ended", func() bool {
		page := b.get(progress.String())
		if page.status != http.StatusOK {
			t.Fatalf("%d %s", page.status, page.body)
		}
		return strings.Contains(page.body, "It has ended")
	})
	if got := one[string](b, "select format('%s retried, %s left, %s records', count(*) filter (where j.status = 'pending'), count(*) filter (where j.status = 'dead_letter'), (select count(*) from pawl.audit)) from pawl.job as j"); got != "800 retried, 1200 left, 800 records" {
		t.Error(got)
	}
}

// A bulk action needs the same rights as others. Neither another site nor a GET starts it.
func TestBulk_IsRefused(t *testing.T) {
	t.Parallel()
	b := setup(t, "", nil)
	b.dead()
	form := url.Values{"mode": {"execute"}, "reason": {"x"}}
	b.get("all/discard?mode=execute&reason=x")
	if a := b.send(http.MethodPost, "all/discard", form, "Sec-Fetch-Site", "cross-site"); a.status != http.StatusForbidden {
		t.Errorf("another site: %d", a.status)
	}
	if a := b.get("run?id=x"); a.status != http.StatusNotFound {
		t.Errorf("no such run: %d", a.status)
	}
	b.user.MayChange = false
	for what, a := range map[string]answer{"begin": b.post("all/discard", form), "ask": b.get("all/discard"), "look": b.get("run?id=x"), "stop": b.post("run", url.Values{"id": {"x"}})} {
		if a.status != http.StatusForbidden {
			t.Errorf("%s: %d", what, a.status)
		}
	}
	if left := one[int](b, "select count(*) from pawl.job"); left != 1 {
		t.Error(fmt.Sprint(left, " jobs are left"))
	}
}

// Dead letters that came after the form was shown are not discarded.
func TestBulk_AsksAgainIfMoreHaveCome(t *testing.T) {
	t.Parallel()
	b := setup(t, "", nil)
	b.dead()
	selected := regexp.MustCompile(`name="selected" value="(\d+)"`)
	form := url.Values{"queue": {"q"}, "mode": {"execute"}, "reason": {"x"}}
	look := func(body string) {
		t.Helper()
		m := selected.FindStringSubmatch(body)
		if m == nil {
			t.Fatal(body)
		}
		form.Set("selected", m[1])
	}
	look(b.get("all/discard?queue=q").body)
	b.dead()
	a := b.post("all/discard", form)
	if a.status != http.StatusConflict || !strings.Contains(a.body, "1 more have come") {
		t.Errorf("%d %s", a.status, a.body)
	}
	if left := one[int](b, "select count(*) from pawl.job"); left != 2 {
		t.Errorf("%d jobs are left", left)
	}
	look(a.body)
	if a := b.post("all/discard", form); a.status != http.StatusSeeOther {
		t.Errorf("after another look: %d %s", a.status, a.body)
	}
}
