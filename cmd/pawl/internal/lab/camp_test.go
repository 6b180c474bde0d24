package lab

import (
	"testing"
	"time"
)

// An order that a frozen worker is handling is not lost, in the counts and in its history, even if
// the queue has deleted it. The worker can still write its row.
func TestCamp_OrderOfAFrozenWorkerIsNotLost(t *testing.T) {
	t.Parallel()
	c := newCamp(ways[0], 2)
	const key = "order-000001"
	c.sent(key)
	if told := c.traced(key, time.Now()).Verdict; told != "on its way" {
		t.Errorf("before it is received: %q", told)
	}
	c.report(1, `{"kind": "began", "key": "order-000001"}`)
	c.wasDeleted(key, 1) // another worker took it as handled
	c.of(key).closed = time.Now().Add(-2 * certainly)
	says := func(lost int, verdict string) {
		t.Helper()
		if counted, told := c.take(nil, nil).Lost, c.traced(key, time.Now()).Verdict; counted != lost || told != verdict {
			t.Errorf("%d lost, and its history says %q; want %d and %q", counted, told, lost, verdict)
		}
	}
	says(0, "acknowledged, no row yet")
	c.died(1)
	says(1, "lost")
}

// While the lab waits for unfinished orders, buttons do not work.
func TestPress_WhileTheLabEnds(t *testing.T) {
	t.Parallel()
	l := &lab{Options: Options{Workers: 1}}
	if err := l.apply(t.Context(), "pause", ""); err != nil || !l.paused {
		t.Fatalf("before: %v, paused %v", err, l.paused)
	}
	l.ending = true
	if err := l.apply(t.Context(), "pause", ""); err == nil || !l.paused || l.pressed != 1 {
		t.Errorf("while it ends: %v, paused %v, %d presses", err, l.paused, l.pressed)
	}
}
