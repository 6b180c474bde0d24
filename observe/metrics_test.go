package observe_test

import (
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/observe"
	"github.com/pawl-go/pawl/observe/internal/metrics"
)

// The Prometheus name is what an exporter makes of the OpenTelemetry name: it replaces dots and
// appends unit and type. So dashboards fit both.
func TestMetrics_NamesFit(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, m := range metrics.Metrics() {
		want := strings.ReplaceAll(m.OTel, ".", "_")
		if m.Unit == "s" {
			want += "_seconds"
		}
		if m.Type == metrics.Counter {
			want += "_total"
		}
		if m.Name != want || seen[m.Name] || !regexp.MustCompile(`^pawl(\.[a-z]+(_[a-z]+)*)+$`).MatchString(m.OTel) {
			t.Errorf("%s is %s in OpenTelemetry, which is exported as %s", m.Name, m.OTel, want)
		}
		if m.Help == "" || strings.HasSuffix(m.Help, ".") || (m.Type == metrics.Histogram) != (len(m.Buckets) > 0) || !slices.IsSorted(m.Buckets) {
			t.Errorf("%+v", m)
		}
		seen[m.Name] = true
	}
}

// The map named has an entry for the Op of each event, so that a new scope does not become a label
// by accident.
func TestScope_IsDecidedForEachOp(t *testing.T) {
	t.Parallel()
	page, ops := read(t, "../docs/reference/events.md"), 0
	for _, row := range regexp.MustCompile("(?m)^\\| `\\w+` \\| `Event\\w+` .*$").FindAllString(page, -1) {
		cells := strings.Split(row, "|")
		for _, op := range regexp.MustCompile("`([a-z_]+)\\.[a-z_]+`").FindAllStringSubmatch(cells[len(cells)-2], -1) {
			ops++
			if !observe.Decided(op[1]) {
				t.Errorf("add %q to named in observe/scope.go: may callers of a service choose the Scope of its events?", op[1])
			}
		}
	}
	if ops < 40 {
		t.Errorf("found only %d ops in docs/reference/events.md", ops)
	}
}

// Callers choose the scope of a command, so it never becomes a label. The same holds for an Op
// without an entry.
func TestScope_LeavesOutWhatCallersChoose(t *testing.T) {
	t.Parallel()
	scopes := metrics.NewScopes(observe.EventOptions{})
	for op, want := range map[string]string{"consumer.commit": "x", "job.finish": "x", "sqs.receive": "x", "nats.receive": "x", "rabbitmq.ack": "x", "command.commit": "", "command.claim": "", "new.op": "", "": ""} {
		if got := scopes.Of(pawl.Event{Op: op, Scope: "x"}); got != want {
			t.Errorf("%q: scope %q, want %q", op, got, want)
		}
	}
}

// The number of scope labels is bounded, and known ones stay.
func TestScopes_AreBounded(t *testing.T) {
	t.Parallel()
	scopes := metrics.NewScopes(observe.EventOptions{MaxScopes: 2, Scope: func(e pawl.Event) string { return e.Key }})
	for _, c := range [][2]string{{"a", "a"}, {"", ""}, {"b", "b"}, {"c", "other"}, {"a", "a"}, {"d", "other"}, {"\xff", "other"}} {
		if got := scopes.Of(pawl.Event{Key: c[0]}); got != c[1] {
			t.Errorf("%q: %q, want %q", c[0], got, c[1])
		}
	}
}

// A program that uses one of the two packages compiles neither the other nor a broker's SDK.
func TestPackages_HaveOneSDKEach(t *testing.T) {
	t.Parallel()
	for pkg, foreign := range map[string][]string{
		".":          {"go.opentelemetry.io/", "github.com/prometheus/", "github.com/aws/"},
		"./prompawl": {"go.opentelemetry.io/", "github.com/aws/"},
		"./otelpawl": {"github.com/prometheus/", "github.com/aws/"},
	} {
		out, err := exec.Command("go", "list", "-deps", pkg).Output()
		if err != nil {
			t.Fatal(err)
		}
		for _, prefix := range foreign {
			if strings.Contains("\n"+string(out), "\n"+prefix) {
				t.Errorf("%s compiles %s", pkg, prefix)
			}
		}
	}
}
