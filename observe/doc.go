// Package observe says what Pawl measures, and reads it from the database. Its packages hand that on:
//
//	prompawl   to Prometheus
//	otelpawl   to OpenTelemetry, with traces
//
//	what happened     pawl.Hooks ── Events ──▶ counters and histograms, of this process
//	what there is     PostgreSQL ── Database ─▶ gauges, of the whole database
//
// The metrics have the same names and labels in both; docs/reference/metrics.md lists them.
package observe

//go:generate go run ./internal/gen ../docs/reference/metrics.md
