package dashboard_test

import (
	"html"
	"regexp"
	"strings"
	"testing"
)

// Ten thousand dead letters of one cause are one line with a link to their list.
func TestDeadLetters_ByCause(t *testing.T) {
	t.Parallel()
	b := setup(t, "", nil)
	b.exec(`insert into pawl.job (queue, kind, payload, status, last_errors)
select 'mail', 'welcome', ''::bytea, 'dead_letter', jsonb_build_array(jsonb_build_object('error', format('dial 10.0.0.%s: connection refused', n))) from generate_series(1, 900) as n
 union all
select 'mail', 'welcome', '', 'dead_letter', '[{"error": "no such mailbox <b>"}]' from generate_series(1, 40)
 union all
select 'mail', 'welcome', '', 'cancelled', '[{"error": "no such mailbox <b>"}]' from generate_series(1, 3)
 union all
select 'orders', 'charge', '', 'dead_letter', null from generate_series(1, 2)`)
	causes := regexp.MustCompile(`(?s)What they died of.*?</table>`).FindString(b.get("dead-letters").body)
	lines := regexp.MustCompile(`(?s)<tr>.*?</tr>`).FindAllString(causes, -1)
	if len(lines) != 4 {
		t.Fatalf("%d lines:\n%s", len(lines), causes)
	}
	for i, want := range []string{"900|dial ….….….…: connection refused", "40|no such mailbox &lt;b&gt;", "2|charge"} {
		for _, part := range strings.Split(want, "|") {
			if !strings.Contains(lines[i+1], part) {
				t.Errorf("no %q in line %d: %s", part, i+1, lines[i+1])
			}
		}
	}
	for i, want := range []string{"10.0.0.1:", "no such mailbox", "charge"} {
		address := html.UnescapeString(regexp.MustCompile(`href="([^"]*dead-letters[^"]*)"`).FindStringSubmatch(lines[i+1])[1])
		list := b.get(strings.TrimPrefix(address, "./")).body
		if !strings.Contains(list, want) || strings.Contains(list, "What they died of") != (i == 2) {
			t.Errorf("%s lists:\n%s", address, list)
		}
	}
	b.exec(`insert into pawl.job (queue, kind, payload, status, last_errors) select 'mail', 'welcome', '', 'dead_letter', '[{"error": "dial 1"}]' from generate_series(1, 200)`)
	if all := b.get("dead-letters").body; !strings.Contains(all, "What the first 1,000 died of") {
		t.Error(all)
	}
	if one := b.get("dead-letters?queue=orders&older_than=1h").body; strings.Contains(one, "died of") {
		t.Error("causes of nothing")
	}
}
