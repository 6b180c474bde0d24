package dashboard_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/pawl-go/pawl/dashboard"
	"github.com/pawl-go/pawl/internal/testbed/patience"
)

// A purge first counts the rows, then deletes them with a reason. It refuses fields that a table
// does not have, and users who may only read.
func TestPurge(t *testing.T) {
	t.Parallel()
	b := setup(t, "", nil)
	b.exec(`insert into pawl.command (scope, key, hash, created_at, expires_at, status)
select 's', 'k' || n, sha256('x'), clock_timestamp() - interval '3 days', clock_timestamp() - interval '2 days', 'succeeded' from generate_series(1, 1500) as n`)
	if a := b.get("doctor"); !strings.Contains(a.body, "all/purge") {
		t.Error("the doctor's page does not lead to the purge")
	}
	form := url.Values{"table": {"command"}}
	if a := b.post("all/purge", form); !strings.Contains(a.body, "1,500 rows of table command would go now") {
		t.Error(a.body)
	}
	form.Set("mode", "execute")
	if a := b.post("all/purge", form); a.status != http.StatusUnprocessableEntity || !strings.Contains(a.body, "Say why") {
		t.Errorf("without a reason: %d", a.status)
	}
	form.Set("reason", "they are old")
	for name, bad := range map[string]url.Values{
		"no table": {"table": {""}}, "another table": {"table": {"audit"}}, "no consumer": {"table": {"inbox"}, "older_than": {"720h"}}, "no age": {"table": {"fence"}},
		"an age that is none": {"table": {"fence"}, "older_than": {"a while"}}, "a negative age": {"table": {"fence"}, "older_than": {"-1h"}},
	} {
		bad.Set("mode", "execute")
		bad.Set("reason", "x")
		if a := b.post("all/purge", bad); a.status != http.StatusUnprocessableEntity {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
	}
	if a := b.post("all/purge", url.Values{"table": {"inbox"}, "consumer": {"c"}, "older_than": {"48h"}}); a.status != http.StatusUnprocessableEntity || !strings.Contains(a.body, "never reported") || !strings.Contains(a.body, `name="older_than"`) {
		t.Errorf("of a consumer that never reported: %d %s", a.status, a.body)
	}
	a := b.post("all/purge", form)
	if a.status != http.StatusSeeOther {
		t.Fatalf("%d %s", a.status, a.body)
	}
	progress := strings.TrimPrefix(a.header.Get("Location"), "./../") // from all/purge
	patience.Until(t, "the purge has ended", func() bool { return strings.Contains(b.get(progress).body, "It has ended") })
	if got := one[string](b, "select format('%s left, %s', (select count(*) from pawl.command), (select string_agg(r.verb || ' ' || r.reason, ', ') from pawl.audit as r))"); !strings.HasPrefix(got, "0 left, ") || !strings.Contains(got, "they are old") {
		t.Error(got)
	}
	reader := setup(t, "", func(c *dashboard.Config) { c.Operators = nil })
	if a := reader.post("all/purge", form); a.status != http.StatusForbidden {
		t.Errorf("read-only: %d", a.status)
	}
	if a := reader.get("all/purge"); a.status != http.StatusForbidden {
		t.Errorf("read-only: %d", a.status)
	}
	if strings.Contains(reader.get("doctor").body, "all/purge") {
		t.Error("a reader is offered the purge")
	}
}
