//go:build proof

package brokers

import (
	"strings"
	"testing"
)

// A broker serves, is killed, restarts on its port, is frozen and woken, and leaves nothing behind.
func TestNATS_LivesAndDies(t *testing.T) {
	t.Parallel()
	s, err := NATS(t.Context(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	livesAndDies(t, s, natsGreets, func() {})
}

// If another program listens on the port, Start fails and does not mistake it for the broker.
func TestNATS_PortIsTaken(t *testing.T) {
	t.Parallel()
	first, err := NATS(t.Context(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = first.Stop() })
	second, err := NATS(t.Context(), Options{Port: first.Port()})
	if err == nil {
		_ = second.Stop()
		t.Fatal("two brokers serve one port")
	}
	if !strings.Contains(err.Error(), "is taken") {
		t.Error(err)
	}
}
