package observe_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/pawl-go/pawl/observe/internal/metrics"
)

var (
	name     = regexp.MustCompile(`\bpawl_[a-z_]+`)
	grouping = regexp.MustCompile(`\bby \(([^)]*)\)`)
	matcher  = regexp.MustCompile(`(\w+)(=~|=)"([^"]*)"`)
	quoted   = regexp.MustCompile(`\$labels\.(\w+)`)
)

// The rules in docs/operating/alerts.md use existing metrics, labels and kinds of events. A summary
// shows only labels that its expression keeps. Each alert has one row on that page and one in the
// runbooks, with the same target.
func TestAlerts_NameWhatExists(t *testing.T) {
	t.Parallel()
	page, kinds := read(t, "../docs/operating/alerts.md"), read(t, "../event.go")
	byName := map[string]metrics.Metric{}
	for _, m := range metrics.Metrics() {
		byName[m.Name] = m
		if m.Type == metrics.Histogram {
			byName[m.Name+"_bucket"] = metrics.Metric{Labels: append([]string{"le"}, m.Labels...)}
		}
	}
	_, rules, _ := strings.Cut(page, "```yaml\n")
	rules, rest, _ := strings.Cut(rules, "```\n")
	if file := read(t, "../deploy/prometheus/pawl.rules.yaml"); !strings.HasSuffix(file, "\n"+rules) {
		t.Error("deploy/prometheus/pawl.rules.yaml has other rules than the page")
	}
	var all []string
	for rule := range strings.SplitSeq(rules, "- alert: ") {
		alert, body, _ := strings.Cut(rule, "\n")
		_, expression, found := strings.Cut(body, "expr: ")
		if !found {
			continue
		}
		expression, _, _ = strings.Cut(expression, "\n")
		all = append(all, alert)
		names := slices.Compact(name.FindAllString(expression, -1))
		if len(names) != 1 {
			t.Errorf("%s: %d metrics in %s", alert, len(names), expression)
			continue
		}
		m, known := byName[names[0]]
		if !known {
			t.Errorf("%s: %s is not measured", alert, names[0])
		}
		var left []string
		for _, g := range grouping.FindAllStringSubmatch(expression, -1) {
			left = strings.Split(g[1], ", ")
		}
		for _, label := range left {
			if !slices.Contains(m.Labels, label) {
				t.Errorf("%s: %s has no label %s", alert, names[0], label)
			}
		}
		for _, c := range matcher.FindAllStringSubmatch(expression, -1) {
			if !slices.Contains(m.Labels, c[1]) {
				t.Errorf("%s: %s has no label %s", alert, names[0], c[1])
			}
			for kind := range strings.SplitSeq(c[3], "|") {
				if c[1] == "kind" && !strings.Contains(kinds, `EventKind = "`+kind+`"`) {
					t.Errorf("%s: no event is %s", alert, kind)
				}
			}
		}
		for _, q := range quoted.FindAllStringSubmatch(body, -1) {
			if !slices.Contains(left, q[1]) {
				t.Errorf("%s: the summary shows label %s, which is gone", alert, q[1])
			}
		}
	}
	if len(all) < 10 {
		t.Errorf("found only %d alerts", len(all))
	}
	onPage, runbooks := rowsOf(rest), rowsOf(read(t, "../docs/operating/README.md"))
	for _, alert := range all {
		advice, runbook := onPage[alert], runbooks[alert]
		if len(advice) != 1 || len(runbook) != 1 {
			t.Errorf("%s has %d rows in alerts.md and %d in the runbooks, want 1 in each", alert, len(advice), len(runbook))
			continue
		}
		links := linked.FindAllStringSubmatch(runbook[0], -1)
		target := links[len(links)-1][1]
		if strings.HasPrefix(target, "#") {
			target = "README.md" + target
		}
		if !strings.HasPrefix(target, "alerts.md#") && !strings.Contains(advice[0], "]("+target+")") {
			t.Errorf("%s: the runbooks go to %s, alerts.md does not", alert, target)
		}
	}
	for name := range runbooks {
		if !slices.Contains(all, name) {
			t.Errorf("the runbooks name %s, which is no alert", name)
		}
	}
	for name := range onPage {
		if !slices.Contains(all, name) {
			t.Errorf("alerts.md names %s, which is no alert", name)
		}
	}
}

var (
	alerted = regexp.MustCompile("`(Pawl[A-Z]\\w+)`")
	linked  = regexp.MustCompile(`\]\(([^)]+)\)`)
)

// rowsOf returns the rows of tables that name alerts, by alert.
func rowsOf(page string) map[string][]string {
	rows := map[string][]string{}
	for line := range strings.Lines(page) {
		if !strings.HasPrefix(line, "|") {
			continue
		}
		for _, m := range alerted.FindAllStringSubmatch(line, -1) {
			rows[m[1]] = append(rows[m[1]], line)
		}
	}
	return rows
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
