//go:build proof

package brokers

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// A Redis serves, is killed, restarts on its port, is frozen and woken, and leaves nothing behind.
func TestRedis_LivesAndDies(t *testing.T) {
	t.Parallel()
	s, err := Redis(t.Context(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if runs, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", s.cmd.Process.Pid)); err == nil && !strings.Contains(string(runs), s.Dir()) {
		t.Errorf("the watchdog does not recognise it: %q", runs)
	}
	livesAndDies(t, s, redisAnswers, func() {})
}
