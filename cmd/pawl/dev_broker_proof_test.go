//go:build proof

package main

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// natsAsk sends one request to a NATS server, in the protocol itself, and returns the reply's body.
func natsAsk(t *testing.T, url, subject, body string) string {
	t.Helper()
	conn, err := net.DialTimeout("tcp", strings.TrimPrefix(url, "nats://"), 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	fmt.Fprintf(conn, "CONNECT {\"verbose\":false}\r\nSUB reply 1\r\nPUB %s reply %d\r\n%s\r\n", subject, len(body), body)
	lines := bufio.NewScanner(conn)
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "MSG reply ") && lines.Scan() {
			return lines.Text()
		}
	}
	t.Fatalf("no reply to %s: %v", subject, lines.Err())
	return ""
}

type devBroker struct{ URL, Dir string }

// A development broker's data stays, even if the command is killed. The URL stays the same, and a
// second start on the directory is refused.
func TestDevNATS_KeepsDataBetweenStarts(t *testing.T) {
	t.Parallel()
	dir, first := filepath.Join(shortDir(t), "nats"), ""
	for start, sig := range []os.Signal{os.Interrupt, os.Kill, syscall.SIGTERM} {
		cmd := command(t, "", "dev", "nats", "--json", "--dir", dir)
		var b devBroker
		served := serve(t, cmd, &b)
		if start == 0 {
			first = b.URL
			natsAsk(t, b.URL, "$JS.API.STREAM.CREATE.ORDERS", `{"name":"ORDERS","subjects":["orders.>"],"storage":"file"}`)
		}
		if b.URL != first {
			t.Errorf("start %d: the URL was %s and is %s", start, first, b.URL)
		}
		if ack := natsAsk(t, b.URL, "orders.placed", "x"); !strings.Contains(ack, fmt.Sprintf(`"seq":%d`, start+1)) {
			t.Errorf("start %d: %s", start, ack)
		}
		wantFailure(t, pawl(t, "", "dev", "nats", "--dir", dir), 1, "runs in "+dir+" already", "choose another directory")
		if err := cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil && sig != os.Kill || !strings.Contains(served.stderr.String(), "export NATS_URL='"+b.URL+"'") {
			t.Errorf("%v: %v: %s", sig, err, served.stderr)
		}
		eventually(t, "the broker is gone", func() bool {
			conn, err := net.Dial("tcp", strings.TrimPrefix(b.URL, "nats://"))
			if err == nil {
				_ = conn.Close()
			}
			return err != nil
		})
	}
}

// A command gets the URL, and the broker stops when the command ends.
func TestDevNATS_RunsACommand(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(shortDir(t), "nats")
	r := mustPawl(t, "", "dev", "nats", "--dir", dir, "--", "sh", "-c", `test "$NATS_URL" = "$PAWL_NATS_URL" && echo "$NATS_URL"`)
	if !strings.HasPrefix(r.stdout, "nats://127.0.0.1:") || strings.Count(r.stdout, "\n") != 1 {
		t.Errorf("%+v", r)
	}
	failed := pawl(t, "", "dev", "nats", "--dir", dir, "--", "sh", "-c", "exit 3")
	if failed.code != 1 || !strings.Contains(failed.stderr, "exit status 3 (look at its output)") {
		t.Errorf("%+v", failed)
	}
}
