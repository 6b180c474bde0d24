package outbox_test

import (
	"slices"
	"testing"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/outbox"
)

// A choosy sink panics in Carries for one of the events.
type choosy struct{ *bed }

func (choosy) Carries(m pawl.Message) error {
	if string(m.Payload) == "bad" {
		panic("boom")
	}
	return nil
}

// If Carries panics on an event, only that event is charged, until it is a dead letter.
func TestRelay_CarriesPanics(t *testing.T) {
	t.Parallel()
	b := setup(t)
	bad := event("b", "bad")
	bad.MaxAttempts = 2
	b.append(event("a", "1"), bad, event("c", "2"))
	b.relay(func(c *outbox.Config) { c.Sink = choosy{b} })
	b.untilAccepted(2)
	b.wait("the bad one is a dead letter", func() bool {
		return b.count("select count(*) from pawl_v1.dead_letters as d where d.last_error like '%Carries: panic: boom, at %'") == 1
	})
	if got := b.accepted(); slices.Contains(got, "bad") || len(got) != 2 {
		t.Errorf("accepted were %q", got)
	}
	if n := b.counters.Count(pawl.EventRetryable); n != 1 {
		t.Errorf("%d retries, want 1 of the bad one", n)
	}
}
