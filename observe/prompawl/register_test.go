package prompawl_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/observe/prompawl"
	"github.com/pawl-go/pawl/pawltest"
)

// One call registers both collectors, and its hooks count and log.
func TestRegister(t *testing.T) {
	var log bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	defer slog.SetDefault(before)
	registry := prometheus.NewPedanticRegistry()
	hooks, err := prompawl.Register(registry, pawltest.DB(t))
	if err != nil {
		t.Fatal(err)
	}
	hooks.Emit(context.Background(), pawl.Event{Kind: pawl.EventError, Op: "test.op"})
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	names := ""
	for _, f := range families {
		names += f.GetName() + " "
	}
	if !strings.Contains(names, "pawl_events_total") || !strings.Contains(names, "pawl_database_read_up") {
		t.Errorf("registered %s", names)
	}
	if !strings.Contains(log.String(), "test.op") {
		t.Errorf("logged %q", log.String())
	}
	if _, err := prompawl.Register(registry, nil); err == nil {
		t.Error("registered twice")
	}
}
