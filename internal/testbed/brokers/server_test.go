package brokers

import (
	"context"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Other processes cannot reserve a reserved port, although nothing listens on it.
func TestFreePort_IsReserved(t *testing.T) {
	t.Parallel()
	for range 20 {
		port, err := FreePort()
		if err != nil {
			t.Fatal(err)
		}
		if c, err := net.ListenPacket("udp", "127.0.0.1:"+strconv.Itoa(port)); err == nil {
			t.Errorf("another process can reserve port %d", port)
			_ = c.Close()
		}
		// A child process that is just starting may still hold the socket of the search.
		if err := AwaitFree(t.Context(), port); err != nil {
			t.Errorf("the broker cannot have its port: %v", err)
		}
	}
}

// If a broker has ended but another one answers at its address, Start fails.
func TestStart_AnotherBrokerAnswers(t *testing.T) {
	t.Parallel()
	s, err := start(t.Context(), program{
		name: "ended", limit: time.Minute,
		prepare: func(context.Context, *Server) error { return nil },
		command: func(*Server) *exec.Cmd { return exec.Command("true") },
		ready: func(_ context.Context, s *Server) error {
			<-s.done
			return nil
		},
	}, Options{})
	if err == nil || !strings.Contains(err.Error(), "it ended while starting") {
		t.Errorf("said %v", err)
		_ = s.Stop()
	}
}
