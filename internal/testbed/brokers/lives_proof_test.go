//go:build proof

package brokers

import (
	"context"
	"os"
	"syscall"
	"testing"
	"time"
)

// livesAndDies kills a server, restarts it on its port, calls back, freezes and wakes it, and ends
// it. It must listen on loopback only, and leave nothing behind.
func livesAndDies(t *testing.T, s *Server, answers func(context.Context, *Server) error, back func()) {
	t.Helper()
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
	back()
	s.Freeze()
	if answers(t.Context(), s) == nil {
		t.Error("it answers while it is frozen")
	}
	s.Wake()
	await(t, "it answers after Wake", func() bool { return answers(t.Context(), s) == nil })
	if err := s.Stop(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(s.Dir()); !os.IsNotExist(err) {
		t.Errorf("its directory is left: %v", err)
	}
}

func await(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it is not so within a minute: %s", what)
		}
	}
}
