package prompawl

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/observe"
	"github.com/pawl-go/pawl/observe/internal/metrics"
)

// Events counts events in this process. Register it, and pass its hooks to the parts whose events
// it shall count.
type Events struct {
	scopes *metrics.Scopes
	total  *prometheus.CounterVec
	took   *prometheus.HistogramVec
	age    *prometheus.HistogramVec
}

var _ prometheus.Collector = (*Events)(nil)

// NewEvents returns empty counters and histograms.
func NewEvents(o observe.EventOptions) *Events {
	count, took, age := metrics.EventsTotal, metrics.HandlerSeconds, metrics.MessageAgeSeconds
	histogram := func(m metrics.Metric) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: m.Name, Help: m.Help + ".", Buckets: m.Buckets}, m.Labels)
	}
	return &Events{scopes: metrics.NewScopes(o), took: histogram(took), age: histogram(age),
		total: prometheus.NewCounterVec(prometheus.CounterOpts{Name: count.Name, Help: count.Help + "."}, count.Labels)}
}

// Hooks returns hooks that feed the metrics. They do not log; see [pawl.Join] and [pawl.LogTo].
func (c *Events) Hooks() pawl.Hooks {
	return pawl.Hooks{OnEvent: func(_ context.Context, e pawl.Event) {
		scope := c.scopes.Of(e)
		c.total.WithLabelValues(string(e.Kind), e.Op, scope).Add(float64(max(e.Count, 1)))
		if e.Kind == pawl.EventSucceeded && e.Took > 0 {
			c.took.WithLabelValues(e.Op, scope).Observe(e.Took.Seconds())
		}
		if e.Age > 0 {
			c.age.WithLabelValues(scope).Observe(e.Age.Seconds())
		}
	}}
}

// Describe implements [prometheus.Collector].
func (c *Events) Describe(to chan<- *prometheus.Desc) {
	c.total.Describe(to)
	c.took.Describe(to)
	c.age.Describe(to)
}

// Collect implements [prometheus.Collector].
func (c *Events) Collect(to chan<- prometheus.Metric) {
	c.total.Collect(to)
	c.took.Collect(to)
	c.age.Collect(to)
}
