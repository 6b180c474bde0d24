package prompawl

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/pawl-go/pawl/observe"
	"github.com/pawl-go/pawl/observe/internal/metrics"
)

// Database collects the gauges of a database at each scrape. A result younger than
// Every of [observe.DatabaseOptions] is reused.
type Database struct {
	reader *metrics.Database
	descs  map[string]*prometheus.Desc // by name
}

var _ prometheus.Collector = (*Database)(nil)

// NewDatabase checks the options. It reads nothing before the first scrape. The pool's role needs
// the rights of pawl_reader.
func NewDatabase(pool *pgxpool.Pool, o observe.DatabaseOptions) (*Database, error) {
	reader, err := metrics.NewDatabase(pool, o)
	if err != nil {
		return nil, err
	}
	d := &Database{reader: reader, descs: map[string]*prometheus.Desc{}}
	for _, m := range metrics.Gauges() {
		d.descs[m.Name] = prometheus.NewDesc(m.Name, m.Help+".", m.Labels, nil)
	}
	return d, nil
}

// Describe implements [prometheus.Collector].
func (d *Database) Describe(to chan<- *prometheus.Desc) {
	for _, desc := range d.descs {
		to <- desc
	}
}

// Collect implements [prometheus.Collector].
func (d *Database) Collect(to chan<- prometheus.Metric) {
	for _, s := range d.reader.Gauges(context.Background()) {
		to <- prometheus.MustNewConstMetric(d.descs[s.Metric.Name], prometheus.GaugeValue, s.Value, s.Labels...)
	}
}
