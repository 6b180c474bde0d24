//go:build proof

package brokers

import (
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A broker serves, is killed, restarts on its port, is frozen and woken, and leaves nothing behind.
func TestNATS_LivesAndDies(t *testing.T) {
	t.Parallel()
	s, err := NATS(t.Context(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	wantLoopback(t, s)
	addr, pid := s.Addr(), s.cmd.Process.Pid
	s.Kill()
	if err := syscall.Kill(pid, 0); err == nil {
		t.Error("it lives after Kill")
	}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s.Addr() != addr {
		t.Errorf("it came back at %s, and was at %s", s.Addr(), addr)
	}
	s.Freeze()
	if natsGreets(t.Context(), s) == nil {
		t.Error("it greets while it is frozen")
	}
	s.Wake()
	for end := time.Now().Add(20 * time.Second); natsGreets(t.Context(), s) != nil; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it does not greet after Wake")
		}
	}
	if err := s.Stop(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(s.Dir()); !os.IsNotExist(err) {
		t.Errorf("its directory is left: %v", err)
	}
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
