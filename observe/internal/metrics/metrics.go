// Package metrics lists Pawl's metrics and reads the gauges from the database.
package metrics

import "slices"

// A Metric is one metric.
type Metric struct {
	Name    string // in Prometheus
	OTel    string // name in OpenTelemetry, without type and unit
	Type    Type
	Unit    string // "s", or the counted thing in UCUM notation: "{event}"
	Labels  []string
	Read    string    // name of the database read that provides it; empty: from events
	Buckets []float64 // of a histogram, in Unit
	Help    string    // one sentence, without a full stop
	Alert   string    // when to alert; empty: no alert of its own
}

// A Type of metrics.
type Type string

// The types.
const (
	Counter   Type = "counter"
	Histogram Type = "histogram"
	Gauge     Type = "gauge"
)

// The metrics of events.
var (
	EventsTotal = Metric{Name: "pawl_events_total", OTel: "pawl.events", Type: Counter, Unit: "{event}", Labels: []string{"kind", "op", "scope"},
		Help:  "Events by kind, step and scope, one for each delivery, job or command that an event stands for",
		Alert: "kinds failed, mismatch, delivery_stale, gap, invalid, unknown, step_twice and webhook_missing need a decision; receive_paused, and error, receive_failed, ack_failed and commit_unknown that do not stop"}

	HandlerSeconds = Metric{Name: "pawl_handler_duration_seconds", OTel: "pawl.handler.duration", Type: Histogram, Unit: "s", Labels: []string{"op", "scope"},
		Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 900},
		Help:    "Duration of handlers whose work took effect; for a batch, of the whole call",
		Alert:   "the 99th percentile near Timeout or Lease of the queue"}

	MessageAgeSeconds = Metric{Name: "pawl_message_age_seconds", OTel: "pawl.message.age", Type: Histogram, Unit: "s", Labels: []string{"scope"},
		Buckets: []float64{.01, .05, .1, .5, 1, 5, 10, 30, 60, 300, 900, 3600, 21600, 86400},
		Help:    "Age of the oldest message of each receive, since its broker accepted it",
		Alert:   "it grows: consumers do not keep up"}
)

// The metrics read from the database.
var (
	Jobs = Metric{Name: "pawl_jobs", OTel: "pawl.jobs", Type: Gauge, Unit: "{job}", Labels: []string{"queue", "status"}, Read: readJobs,
		Help: "Jobs that have not finished, by queue and status"}

	OutboxPending = Metric{Name: "pawl_outbox_pending", OTel: "pawl.outbox.pending", Type: Gauge, Unit: "{event}", Labels: []string{"sink"}, Read: readJobs,
		Help: "Events to be published; 0 if a relay of the sink runs and there are none"}

	OutboxLagSeconds = Metric{Name: "pawl_outbox_lag_seconds", OTel: "pawl.outbox.lag", Type: Gauge, Unit: "s", Labels: []string{"sink"}, Read: readJobs,
		Help:  "Age of the oldest event to be published",
		Alert: "above what receivers can bear: the sink is down, an aggregate is blocked, or no relay runs"}

	OldestDueSeconds = Metric{Name: "pawl_oldest_due_age_seconds", OTel: "pawl.oldest_due_age", Type: Gauge, Unit: "s", Labels: []string{"queue"}, Read: readDue,
		Help:  "How long the oldest due job has waited for a worker; 0 if none is due",
		Alert: "it grows: too few workers, or none; the signal to scale by"}

	DeadLetters = Metric{Name: "pawl_dead_letters", OTel: "pawl.dead_letters", Type: Gauge, Unit: "{job}", Labels: []string{"queue", "status"}, Read: readDead,
		Help:  "Jobs that are not tried again until an operator decides: dead letters and unknown jobs",
		Alert: "above 0"}

	BlockedLanes = Metric{Name: "pawl_blocked_lanes", OTel: "pawl.blocked_lanes", Type: Gauge, Unit: "{lane}", Labels: []string{"queue"}, Read: readDead,
		Help:  "Lanes that wait until an operator decides about their first job",
		Alert: "above 0"}

	Workers = Metric{Name: "pawl_workers", OTel: "pawl.workers", Type: Gauge, Unit: "{worker}", Labels: []string{"state"}, Read: readWorkers,
		Help:  "Registered workers, alive or silent for longer than their lease",
		Alert: "no worker is alive; a silent one that stays for minutes: no worker sweeps"}

	WorkerWakeups = Metric{Name: "pawl_worker_wakeups", OTel: "pawl.worker.wakeups", Type: Gauge, Unit: "{worker}", Labels: []string{"state"}, Read: readWorkers,
		Help:  "Workers alive, by whether an enqueue wakes them when they are idle; state off: they find new jobs by polling",
		Alert: "state off above 0, unless you mean it: pawl doctor says why, as wakeups"}

	StaleCommands = Metric{Name: "pawl_stale_commands", OTel: "pawl.stale_commands", Type: Gauge, Unit: "{command}", Labels: []string{"status"}, Read: readCommands,
		Help:  "Leased commands that need help to finish: unknown ones, and those with an expired lease",
		Alert: "status unknown above 0: find out whether it took effect, then settle it"}

	// Not the unit "1": exporters append _ratio to a gauge with that unit, and nothing for a unit
	// in braces. So the OTLP name is pawl_database_read_up too.
	ReadUp = Metric{Name: "pawl_database_read_up", OTel: "pawl.database.read.up", Type: Gauge, Unit: "{read}", Labels: []string{"read"}, Read: anyRead,
		Help:  "1 if the last read of the database succeeded within its limit; if 0 its gauges are missing",
		Alert: "0: the other gauges say nothing"}

	ReadSeconds = Metric{Name: "pawl_database_read_duration_seconds", OTel: "pawl.database.read.duration", Type: Gauge, Unit: "s", Labels: []string{"read"}, Read: anyRead,
		Help: "How long the last read of the database took"}
)

// anyRead marks metrics that each read has.
const anyRead = "each"

// Metrics returns all metrics: those of events first, then those of the database.
func Metrics() []Metric {
	return append([]Metric{EventsTotal, HandlerSeconds, MessageAgeSeconds}, Gauges()...)
}

// Gauges returns the metrics read from the database.
func Gauges() []Metric {
	return slices.Clone([]Metric{Jobs, OutboxPending, OutboxLagSeconds, OldestDueSeconds, DeadLetters, BlockedLanes, Workers, WorkerWakeups,
		StaleCommands, ReadUp, ReadSeconds})
}
