// Package observe defines Pawl's metrics and reads gauges from the database. Its packages export
// them:
//
//	prompawl   to Prometheus
//	otelpawl   to OpenTelemetry, with traces
//
//	events           pawl.Hooks ── Events ──▶ counters and histograms, of this process
//	current state    PostgreSQL ── Database ─▶ gauges, of the whole database
//
// The metrics have the same names and labels in both. docs/reference/metrics.md lists them.
package observe

//go:generate go run ./internal/gen ../docs/reference/metrics.md
