package otelpawl_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/observe"
	"github.com/pawl-go/pawl/observe/internal/metrics"
	"github.com/pawl-go/pawl/observe/otelpawl"
)

// Exactly the listed metrics are exported, with their names, units and labels.
func TestMetrics_AreTheListedOnes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	reader := sdkmetric.NewManualReader()
	provider := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
	events, err := otelpawl.Events(provider, observe.EventOptions{})
	b.must(err)
	registration, err := otelpawl.Database(provider, b.pool, observe.DatabaseOptions{})
	b.must(err)
	for _, queue := range []string{"mail", "outbox/main"} {
		_, err := job.Enqueue(t.Context(), b.pool, job.Request{Queue: queue, Kind: "k"})
		b.must(err)
	}
	_, err = b.pool.Exec(t.Context(), "insert into pawl.job (queue, kind, payload, status) values ('mail', 'k', '', 'dead_letter')")
	b.must(err)
	events.Emit(t.Context(), pawl.Event{Kind: pawl.EventSucceeded, Op: "job.commit", Scope: "mail", Count: 3, Took: 20 * time.Millisecond, Age: time.Second})
	events.Emit(t.Context(), pawl.Event{Kind: pawl.EventFailed, Op: "command.fail", Scope: "orders/acme", Took: time.Second})

	var data metricdata.ResourceMetrics
	b.must(reader.Collect(t.Context(), &data))
	var got, want []string
	for _, m := range data.ScopeMetrics[0].Metrics {
		got = append(got, m.Name+" "+m.Unit+" "+strings.Join(labelsOf(m), ","))
	}
	for _, m := range metrics.Metrics() {
		labels := slices.Sorted(slices.Values(m.Labels))
		want = append(want, m.OTel+" "+m.Unit+" "+strings.Join(labels, ","))
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("exported\n%s\nlisted\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for _, m := range data.ScopeMetrics[0].Metrics {
		switch d := m.Data.(type) {
		case metricdata.Sum[int64]:
			for _, p := range d.DataPoints {
				kind, _ := p.Attributes.Value("kind")
				scope, _ := p.Attributes.Value("scope")
				if !d.IsMonotonic || p.Value != map[string]int64{"succeeded": 3, "failed": 1}[kind.AsString()] || scope.AsString() == "orders/acme" {
					t.Errorf("%v", p)
				}
			}
		case metricdata.Histogram[float64]:
			if len(d.DataPoints) != 1 || d.DataPoints[0].Count != 1 || len(d.DataPoints[0].Bounds) < 10 {
				t.Errorf("%s: %+v", m.Name, d)
			}
		}
	}
	b.must(registration.Unregister())
	b.must(reader.Collect(t.Context(), &data))
	if n := len(data.ScopeMetrics[0].Metrics); n != 3 {
		t.Errorf("%d metrics are left, want the three of events", n)
	}
}

// labelsOf returns the names of the attributes of all points.
func labelsOf(m metricdata.Metrics) []string {
	names := map[string]bool{}
	add := func(s attribute.Set) {
		for _, a := range s.ToSlice() {
			names[string(a.Key)] = true
		}
	}
	switch d := m.Data.(type) {
	case metricdata.Sum[int64]:
		for _, p := range d.DataPoints {
			add(p.Attributes)
		}
	case metricdata.Histogram[float64]:
		for _, p := range d.DataPoints {
			add(p.Attributes)
		}
	case metricdata.Gauge[float64]:
		for _, p := range d.DataPoints {
			add(p.Attributes)
		}
	}
	var all []string
	for name := range names {
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}
