//go:build proof

package brokers

import (
	"context"
	"os"
	"syscall"
	"testing"
	"time"
)

// Each SQS emulator serves, is killed, restarts on its port, and leaves nothing behind.
func TestSQSEmulators_StartAndStop(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(context.Context, Options) (*Server, error){"ElasticMQ": ElasticMQ, "moto": Moto, "LocalStack": LocalStack} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			begun := time.Now()
			s, err := open(t.Context(), Options{Log: func(line string) { t.Log(line) }})
			if err != nil {
				t.Fatal(err)
			}
			t.Log("the first start took", time.Since(begun).Round(time.Millisecond))
			wantLoopback(t, s)
			addr, pid := s.Addr(), s.cmd.Process.Pid
			s.Kill()
			if err := syscall.Kill(pid, 0); err == nil {
				t.Error("it lives after Kill")
			}
			begun = time.Now()
			if err := s.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			t.Log("a start after a kill took", time.Since(begun).Round(time.Millisecond))
			if s.Addr() != addr {
				t.Errorf("it came back at %s, and was at %s", s.Addr(), addr)
			}
			if err := s.Stop(); err != nil {
				t.Error(err)
			}
			if _, err := os.Stat(s.Dir()); !os.IsNotExist(err) {
				t.Errorf("its directory is left: %v", err)
			}
		})
	}
}
