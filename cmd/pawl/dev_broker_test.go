package main

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// natsAsk is one request to a NATS server, in the protocol itself, and the reply's body.
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

// The data of a development broker outlives it, also if the command is killed; the URL stays, and a second start on the directory is refused.
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

// A command gets the URL, and its end is the broker's.
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

// On a machine that has cached nothing, each pawl dev command refuses a bad flag before it fetches
// or starts anything.
func TestDev_ChecksFlagsFirst(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = taken.Close() }) // behind the parallel cases
	port := fmt.Sprint(taken.Addr().(*net.TCPAddr).Port)
	file := filepath.Join(shortDir(t), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"sqs --queue orders --queue no.dots", 2, `"no.dots" of --queue names no queue`},
		{"sqs --queue .fifo", 2, `".fifo" of --queue names no queue`},
		{"sqs --chaos much", 2, `"much" of --chaos`},
		{"postgres --dir " + file, 1, "not a directory"},
		{"postgres --dir DIR -- /no/such/program", 2, "check the command behind --"},
		{"nats --dir " + file, 1, "not a directory"},
		{"nats --dir DIR --port 70000", 2, "--port must lie between"},
		{"nats --dir DIR --port " + port, 1, "port " + port + " is taken"},
		{"nats --dir DIR -- /no/such/program", 2, "check the command behind --"},
		{"rabbitmq --dir " + file, 1, "not a directory"},
		{"rabbitmq --dir DIR --port " + port, 1, "port " + port + " is taken"},
		{"rabbitmq --dir DIR -- /no/such/program", 2, "check the command behind --"},
		{"kafka --dir " + file, 1, "not a directory"},
		{"kafka --dir DIR --port " + port, 1, "port " + port + " is taken"},
		{"kafka --dir DIR --topic orders:many", 2, `"orders:many" of --topic has no count of partitions`},
		{"kafka --dir DIR --topic orders:0", 2, "1 to 10000"},
		{"kafka --dir DIR --topic orders:10001", 2, "1 to 10000"},
		{"kafka --dir DIR --topic orders --topic :6", 2, `":6" of --topic names no topic`},
		{"kafka --dir DIR --topic ..", 2, `".." of --topic names no topic`},
		{"kafka --dir DIR -- /no/such/program", 2, "check the command behind --"},
	} {
		t.Run(c.args, func(t *testing.T) {
			t.Parallel()
			home := shortDir(t)
			cache := filepath.Join(home, "cache")
			cmd := command(t, "", append([]string{"dev"}, strings.Fields(strings.ReplaceAll(c.args, "DIR", filepath.Join(home, "data")))...)...)
			cmd.Env = append(cmd.Env, "HOME="+cache, "XDG_CACHE_HOME="+cache, "GOMODCACHE="+cache, "PAWL_PG_BIN=", "PAWL_NATS_SERVER=", "PAWL_KAFKA_HOME=")
			var stderr strings.Builder
			cmd.Stderr = &stderr
			_ = cmd.Run()
			wantFailure(t, result{cmd.ProcessState.ExitCode(), "", stderr.String()}, c.code, c.want)
			if fetched, err := os.ReadDir(cache); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("it fetched: %v, %v", fetched, err)
			}
		})
	}
}

func TestDevNATS_Refusals(t *testing.T) {
	t.Parallel()
	dir := shortDir(t)
	wantFailure(t, pawl(t, "", "dev", "nats"), 2, "--dir")
	wantFailure(t, pawl(t, "", "dev", "nats", "--dir", dir, "extra"), 2, "extra")
	wantFailure(t, pawl(t, "", "dev", "nats", "--dir", dir, "--port", "70000"), 2, "--port must lie between 1 and 65535")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	port := fmt.Sprint(l.Addr().(*net.TCPAddr).Port)
	wantFailure(t, pawl(t, "", "dev", "nats", "--dir", dir, "--port", port), 1, "port "+port+" is taken", "--port")
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	wantFailure(t, pawl(t, "", "dev", "nats", "--dir", file), 1, "not a directory", "--dir")
	cmd := command(t, "", "dev", "nats", "--dir", dir)
	cmd.Env = append(cmd.Env, "PAWL_NATS_SERVER="+filepath.Join(dir, "none"))
	var stderr strings.Builder
	cmd.Stderr = &stderr
	_ = cmd.Run()
	wantFailure(t, result{cmd.ProcessState.ExitCode(), "", stderr.String()}, 1, filepath.Join(dir, "none"), "--dir")
	if help := mustPawl(t, "", "dev", "nats", "--help").stdout; !strings.Contains(help, "nats consumer add ORDERS") || !strings.Contains(help, "PAWL_NATS_URL") {
		t.Error(help)
	}
}
