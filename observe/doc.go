// Package observe defines Pawl's metrics and reads gauges from the database. It has the options;
// use one of its packages to export the metrics:
//
//	prompawl   to Prometheus
//	otelpawl   to OpenTelemetry, with traces
//
// For Prometheus, register both sources of metrics and pass the hooks to every part of the program:
//
//	hooks, err := prompawl.Register(prometheus.DefaultRegisterer, pool) // then service.Config{Hooks: hooks}
//
// The sources:
//
//	events           pawl.Hooks ── Events ──▶ counters and histograms, of this process
//	current state    PostgreSQL ── Database ─▶ gauges, of the whole database
//
// The metrics have the same names and labels in both. docs/reference/metrics.md lists them.
package observe

//go:generate go run ./internal/gen ../docs/reference/metrics.md
