package prompawl_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/observe"
	"github.com/pawl-go/pawl/observe/internal/metrics"
	"github.com/pawl-go/pawl/observe/prompawl"
	"github.com/pawl-go/pawl/pawltest"
)

// everything emits an event for each metric.
func everything(h pawl.Hooks) {
	for _, e := range []pawl.Event{
		{Kind: pawl.EventSucceeded, Op: "job.commit", Scope: "mail", Count: 3, Took: 20 * time.Millisecond},
		{Kind: pawl.EventSucceeded, Op: "job.commit", Scope: "mail", Took: 2 * time.Second},
		{Kind: pawl.EventFailed, Op: "command.fail", Scope: "orders/acme", Took: time.Second, Err: errors.New("refused")},
		{Kind: pawl.EventReceived, Op: "sqs.receive", Scope: "orders", Count: 10, Age: 30 * time.Second},
	} {
		h.Emit(context.Background(), e)
	}
}

// An event counts as often as its Count says. A duration is recorded once a call, and only for work
// that took effect. No tenant becomes a label.
func TestEvents_Count(t *testing.T) {
	t.Parallel()
	events := prompawl.NewEvents(observe.EventOptions{})
	everything(events.Hooks())
	const want = `
# HELP pawl_events_total Events by kind, step and scope, one for each delivery, job or command that an event stands for.
# TYPE pawl_events_total counter
pawl_events_total{kind="failed",op="command.fail",scope=""} 1
pawl_events_total{kind="succeeded",op="job.commit",scope="mail"} 4
pawl_events_total{kind="received",op="sqs.receive",scope="orders"} 10
`
	if err := testutil.CollectAndCompare(events, strings.NewReader(want), "pawl_events_total"); err != nil {
		t.Error(err)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(events)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		h := f.GetMetric()[0].GetHistogram()
		switch f.GetName() {
		case "pawl_handler_duration_seconds":
			if len(f.GetMetric()) != 1 || h.GetSampleCount() != 2 || h.GetSampleSum() != 2.02 {
				t.Errorf("durations %v", f)
			}
		case "pawl_message_age_seconds":
			if len(f.GetMetric()) != 1 || h.GetSampleCount() != 1 || h.GetSampleSum() != 30 {
				t.Errorf("ages %v", f)
			}
		}
	}
}

// All metrics, each with a value, pass Prometheus's own checks of names, types and help, and are
// exactly the listed ones.
func TestMetrics_PassTheLinter(t *testing.T) {
	t.Parallel()
	pool := pawltest.DB(t)
	for _, queue := range []string{"mail", "outbox/main"} {
		if _, err := job.Enqueue(t.Context(), pool, job.Request{Queue: queue, Kind: "k"}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := pool.Exec(t.Context(), "insert into pawl.job (queue, kind, payload, status) values ('mail', 'k', '', 'dead_letter')"); err != nil {
		t.Fatal(err)
	}
	events := prompawl.NewEvents(observe.EventOptions{})
	everything(events.Hooks())
	database, err := prompawl.NewDatabase(pool, observe.DatabaseOptions{})
	if err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(events, database)
	problems, err := testutil.GatherAndLint(registry)
	if err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var got, want []string
	for _, f := range families {
		got = append(got, f.GetName()+" "+strings.ToLower(f.GetType().String()))
	}
	for _, m := range metrics.Metrics() {
		want = append(want, m.Name+" "+string(m.Type))
	}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("exported\n%s\nlisted\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
