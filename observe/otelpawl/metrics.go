package otelpawl

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/observe"
	"github.com/pawl-go/pawl/observe/internal/metrics"
)

// Events returns hooks that count events of this process. If p is nil, it uses the global provider.
// The hooks do not log; see [pawl.Join] and [pawl.LogTo].
func Events(p metric.MeterProvider, o observe.EventOptions) (pawl.Hooks, error) {
	meter, scopes := meterOf(p), metrics.NewScopes(o)
	total, err := meter.Int64Counter(metrics.EventsTotal.OTel, metric.WithUnit(metrics.EventsTotal.Unit), metric.WithDescription(metrics.EventsTotal.Help))
	took, err2 := histogram(meter, metrics.HandlerSeconds)
	age, err3 := histogram(meter, metrics.MessageAgeSeconds)
	return pawl.Hooks{OnEvent: func(ctx context.Context, e pawl.Event) {
		scope := scopes.Of(e)
		total.Add(ctx, int64(max(e.Count, 1)), labelled(metrics.EventsTotal, string(e.Kind), e.Op, scope))
		if e.Kind == pawl.EventSucceeded && e.Took > 0 {
			took.Record(ctx, e.Took.Seconds(), labelled(metrics.HandlerSeconds, e.Op, scope))
		}
		if e.Age > 0 {
			age.Record(ctx, e.Age.Seconds(), labelled(metrics.MessageAgeSeconds, scope))
		}
	}}, errors.Join(err, err2, err3)
}

func meterOf(p metric.MeterProvider) metric.Meter {
	if p == nil {
		p = otel.GetMeterProvider()
	}
	return p.Meter(name)
}

func histogram(meter metric.Meter, m metrics.Metric) (metric.Float64Histogram, error) {
	return meter.Float64Histogram(m.OTel, metric.WithUnit(m.Unit), metric.WithDescription(m.Help), metric.WithExplicitBucketBoundaries(m.Buckets...))
}

// labelled returns the labels of a metric as attributes, without empty ones.
func labelled(m metrics.Metric, values ...string) metric.MeasurementOption {
	all := make([]attribute.KeyValue, 0, len(values))
	for i, value := range values {
		if value != "" {
			all = append(all, attribute.String(m.Labels[i], value))
		}
	}
	return metric.WithAttributes(all...)
}

// Database registers a callback that reads the gauges of a database at each collection. A result
// younger than Every of [observe.DatabaseOptions] is reused. If p is nil, it uses the global
// provider. Every process that registers it reports the same numbers: register it in one process,
// or take the maximum. The pool's role needs the rights of pawl_reader. Call Unregister to end it.
func Database(p metric.MeterProvider, pool *pgxpool.Pool, o observe.DatabaseOptions) (metric.Registration, error) {
	reader, err := metrics.NewDatabase(pool, o)
	if err != nil {
		return nil, err
	}
	meter := meterOf(p)
	gauges, instruments := map[string]metric.Float64ObservableGauge{}, []metric.Observable{}
	for _, m := range metrics.Gauges() {
		g, err := meter.Float64ObservableGauge(m.OTel, metric.WithUnit(m.Unit), metric.WithDescription(m.Help))
		if err != nil {
			return nil, err
		}
		gauges[m.Name], instruments = g, append(instruments, g)
	}
	return meter.RegisterCallback(func(ctx context.Context, to metric.Observer) error {
		for _, s := range reader.Gauges(ctx) {
			to.ObserveFloat64(gauges[s.Metric.Name], s.Value, labelled(s.Metric, s.Labels...))
		}
		return nil
	}, instruments...)
}
