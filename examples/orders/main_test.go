package main

import (
	"bufio"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/command/httpkey"
	"github.com/pawl-go/pawl/internal/testbed/patience"
	"github.com/pawl-go/pawl/pawltest"
)

// The server of the guide runs as a process, and is killed and restarted. A client that only
// retries gets one order for each key.
func TestOrders(t *testing.T) {
	t.Parallel()
	binary := filepath.Join(t.TempDir(), "orders")
	if out, err := exec.Command("go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	database := pawltest.URL(t)
	doomed := start(t, binary, "DATABASE_URL="+database, "LISTEN=127.0.0.1:0")
	first := post(t, doomed.url, "17", `{"item":"shoes","count":2}`)
	if first.status != 201 || !strings.HasPrefix(first.location, "/orders/") {
		t.Fatalf("%+v", first)
	}
	if err := doomed.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	s := start(t, binary, "DATABASE_URL="+database, "LISTEN=127.0.0.1:0")
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if again := post(t, s.url, "17", `{"item":"shoes","count":2}`); again != first {
				t.Errorf("%+v, want %+v", again, first)
			}
		})
	}
	all.Wait()
	for key, c := range map[string]struct {
		body string
		want int
	}{"a": {`{"item":"unicorn","count":1}`, 409}, "b": {`no order`, 400}, "17": {`{"item":"shoes","count":3}`, 422}} {
		for range 2 {
			if got := post(t, s.url, key, c.body); got.status != c.want {
				t.Errorf("%s: %+v", c.body, got)
			}
		}
	}
	conn, err := pgx.Connect(t.Context(), database)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	var orders, shoes int
	err = conn.QueryRow(t.Context(), "select (select count(*) from orders), (select left_over from stock)").Scan(&orders, &shoes)
	if err != nil || orders != 1 || shoes != 999_998 {
		t.Errorf("%d orders, %d shoes left, %v", orders, shoes, err)
	}
	s.mustStop(t)
}

// Without a database the server starts its own, so one command is enough.
func TestOrders_OneCommand(t *testing.T) {
	t.Parallel()
	binary := filepath.Join(t.TempDir(), "orders")
	if out, err := exec.Command("go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	s := start(t, binary, "LISTEN=127.0.0.1:0")
	if got := post(t, s.url, "1", `{"item":"shoes","count":1}`); got.status != 201 {
		t.Errorf("%+v", got)
	}
	s.mustStop(t)
}

// A server is a running program.
type server struct {
	cmd   *exec.Cmd
	url   string
	ended chan error
}

func start(t *testing.T, binary string, env ...string) server {
	t.Helper()
	s := server{cmd: exec.Command(binary), ended: make(chan error, 1)}
	s.cmd.Env = append(os.Environ(), env...)
	out, err := s.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.cmd.Process.Kill() })
	lines := bufio.NewScanner(out)
	said := ""
	for s.url == "" && lines.Scan() {
		said += lines.Text() + "\n"
		_, s.url, _ = strings.Cut(lines.Text(), "serving ")
	}
	if s.url == "" {
		t.Fatalf("the server did not start:\n%s", said)
	}
	go func() {
		_, _ = io.Copy(io.Discard, out)
		s.ended <- s.cmd.Wait()
	}()
	return s
}

func (s server) mustStop(t *testing.T) {
	t.Helper()
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := patience.Receive(t, "it ends after SIGTERM", s.ended); err != nil {
		t.Error(err)
	}
}

// An answer is the part of a response that a client keeps.
type answer struct {
	status         int
	location, body string
}

func post(t *testing.T, url, key, body string) (a answer) {
	t.Helper()
	client := &http.Client{Transport: &httpkey.RetryingClient{}}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/orders", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set(httpkey.KeyHeader, key)
	response, err := client.Do(r)
	if err != nil {
		t.Error(err)
		return a
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Error(err)
	}
	return answer{response.StatusCode, response.Header.Get("Location"), string(text)}
}
