//go:build proof

package main

import (
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A development RabbitMQ has one address for its directory and serves AMQP there. It stops with its
// command, even if that is killed.
func TestDevRabbitMQ(t *testing.T) {
	t.Parallel()
	dir, first := filepath.Join(shortDir(t), "rabbit"), ""
	for start, sig := range []os.Signal{syscall.SIGTERM, os.Kill} {
		cmd := command(t, "", "dev", "rabbitmq", "--json", "--dir", dir)
		var b devBroker
		served := serve(t, cmd, &b)
		addr, is := strings.CutPrefix(b.URL, "amqp://guest:guest@")
		if addr = strings.TrimSuffix(addr, "/"); !is || start > 0 && addr != first {
			t.Errorf("start %d: the URL is %s, and was at %s", start, b.URL, first)
		}
		first = addr
		conn, err := net.DialTimeout("tcp", addr, 5*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
		var frame [7]byte
		if _, err := conn.Write([]byte("AMQP\x00\x00\x09\x01")); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(conn, frame[:]); err != nil || frame[0] != 1 {
			t.Errorf("it greets with %q, %v", frame, err)
		}
		_ = conn.Close()
		if err := cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil && sig != os.Kill || !strings.Contains(served.stderr.String(), "export RABBITMQ_URL='"+b.URL+"'") {
			t.Errorf("%v: %v: %s", sig, err, served.stderr)
		}
		eventually(t, "the broker is gone", func() bool {
			conn, err := net.Dial("tcp", addr)
			if err == nil {
				_ = conn.Close()
			}
			return err != nil
		})
	}
	if help := mustPawl(t, "", "dev", "rabbitmq", "--help").stdout; !strings.Contains(help, "PAWL_RABBITMQ_SERVER") || !strings.Contains(help, "RABBITMQ_URL") {
		t.Error(help)
	}
	cmd := command(t, "", "dev", "rabbitmq", "--dir", dir)
	cmd.Env = append(cmd.Env, "PAWL_RABBITMQ_SERVER="+filepath.Join(dir, "none"))
	var stderr strings.Builder
	cmd.Stderr = &stderr
	_ = cmd.Run()
	wantFailure(t, result{cmd.ProcessState.ExitCode(), "", stderr.String()}, 1, "PAWL_RABBITMQ_SERVER", filepath.Join(dir, "none"))
}
