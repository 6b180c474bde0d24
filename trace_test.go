package pawl_test

import (
	"strings"
	"testing"

	"github.com/pawl-go/pawl"
)

// A well-formed trace is carried unchanged. A trace that W3C receivers would reject counts as none.
func TestTraceOf(t *testing.T) {
	t.Parallel()
	const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	if got := pawl.TraceOf(t.Context()); got != (pawl.Trace{}) {
		t.Errorf("no trace: %v", got)
	}
	want := pawl.Trace{Parent: parent, State: "vendor=1"}
	if got := pawl.TraceOf(pawl.WithTrace(t.Context(), want)); got != want {
		t.Errorf("%v", got)
	}
	for _, bad := range []string{"", "00", parent + "\n", "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01", parent + "-extra"} {
		if got := pawl.TraceOf(pawl.WithTrace(t.Context(), pawl.Trace{Parent: bad})); got != (pawl.Trace{}) {
			t.Errorf("%q: %v", bad, got)
		}
	}
}

// A state that a database or broker might refuse is left out, and the trace goes on.
func TestTraceOf_LeavesOutAStateThatCannotBeCarried(t *testing.T) {
	t.Parallel()
	const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	for state, want := range map[string]string{
		"a=" + strings.Repeat("b", 510): "a=" + strings.Repeat("b", 510), "a=" + strings.Repeat("b", 511): "", "a=\x00": "", "a=\xff": "", "a=é": "", "a=b, c=d": "a=b, c=d",
	} {
		got := pawl.TraceOf(pawl.WithTrace(t.Context(), pawl.Trace{Parent: parent, State: state}))
		if got.Parent != parent || got.State != want {
			t.Errorf("%q: %v", state, got)
		}
	}
}

// A message carries a trace in the attributes that W3C names as headers.
func TestDelivery_Trace(t *testing.T) {
	t.Parallel()
	want := pawl.Trace{Parent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", State: "vendor=1"}
	d := pawl.Delivery{Attributes: map[string]string{"traceparent": want.Parent, "tracestate": want.State}}
	if got := d.Trace(); got != want {
		t.Errorf("%v", got)
	}
	for _, without := range []map[string]string{nil, {"traceparent": "00", "tracestate": want.State}} {
		if got := (pawl.Delivery{Attributes: without}).Trace(); got != (pawl.Trace{}) {
			t.Errorf("%v: %v", without, got)
		}
	}
}
