//go:build proof

package brokers

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
)

// A Redis serves, is killed, restarts on its port, is frozen and woken, and leaves nothing behind.
func TestRedis_LivesAndDies(t *testing.T) {
	t.Parallel()
	s, err := Redis(t.Context(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	wantLoopback(t, s)
	addr, pid := s.Addr(), s.cmd.Process.Pid
	if runs, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); err == nil && !strings.Contains(string(runs), s.Dir()) {
		t.Errorf("the watchdog does not recognise it: %q", runs)
	}
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
	if redisAnswers(t.Context(), s) == nil {
		t.Error("it answers while it is frozen")
	}
	s.Wake()
	await(t, "it answers after Wake", func() bool { return redisAnswers(t.Context(), s) == nil })
	if err := s.Stop(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(s.Dir()); !os.IsNotExist(err) {
		t.Errorf("its directory is left: %v", err)
	}
}
