//go:build proof

package main

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// The program that pawl init writes builds against this tree, passes its own test, and runs with
// the printed commands. An order sent three times is written once. SIGTERM ends the program and its
// server.
func TestInit_WritesAServiceThatRuns(t *testing.T) {
	t.Parallel()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "orders")
	r := mustPawl(t, "", "init", dir, "--source", root)
	for _, part := range []string{"main.go", "main_test.go", "go.mod", "README.md"} {
		if !strings.Contains(r.stdout, filepath.Join(dir, part)+"\n") {
			t.Errorf("%s was not named: %q", part, r.stdout)
		}
	}
	if !strings.Contains(r.stderr, "pawl dev postgres --dir ./pgdata -- go run .") {
		t.Errorf("the next step is not named: %q", r.stderr)
	}
	env := append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod", "PATH="+filepath.Dir(binary)+":"+os.Getenv("PATH"))
	in := func(name string, args ...string) string {
		t.Helper()
		cmd := exec.Command(name, args...)
		cmd.Dir, cmd.Env = dir, env
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s %v: %v\n%s", name, args, err, out)
		}
		return string(out)
	}
	if out := in("gofmt", "-l", "."); out != "" {
		t.Errorf("gofmt: %s", out)
	}
	in("go", "mod", "tidy", "-diff")
	in("go", "vet", "./...")
	in("go", "test", "./...")

	const secret = "for-trying-it-out"
	cmd := exec.Command(binary, "dev", "postgres", "--dir", "./pgdata", "--", "go", "run", ".")
	var said bytes.Buffer
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &said, &said
	listen := freeAddress(t)
	cmd.Env = append(env, "PAWL_WEBHOOK_SECRET="+secret, "LISTEN="+listen)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() { _ = cmd.Process.Signal(syscall.SIGTERM) })
	eventually(t, "it is ready", func() bool {
		answer, err := http.Get("http://" + listen + "/readyz")
		if err != nil {
			return false
		}
		_ = answer.Body.Close()
		return answer.StatusCode == http.StatusOK
	})
	send := exec.Command(binary, "webhook", "send", "http://"+listen+"/orders", "--scheme", "github", "--id", "1", "--repeat", "3")
	send.Env, send.Stdin = append(env, "PAWL_WEBHOOK_SECRET="+secret), strings.NewReader(`{"id":"order-1","cents":1250}`)
	if out, err := send.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if n := written(t, dir); n != 1 {
		t.Errorf("the order was written %d times", n)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("%v\n%s", err, &said)
		}
	case <-time.After(3 * time.Minute):
		t.Fatalf("it does not end")
	}
	if answer, err := http.Get("http://" + listen + "/readyz"); err == nil {
		_ = answer.Body.Close()
		t.Error("the program still runs")
	}
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// written counts the orders in the running server of a directory.
func written(t *testing.T, dir string) (n int) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "pgdata", "postmaster.pid"))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(text), "\n") // pid, data, start, port, socket directory
	conn, err := pgx.Connect(context.Background(), "user=postgres dbname=postgres host="+strings.TrimSpace(lines[4])+" port="+lines[3])
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if err := conn.QueryRow(context.Background(), "select count(*) from orders where id = 'order-1'").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}
