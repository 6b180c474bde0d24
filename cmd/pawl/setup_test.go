package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/internal/testbed/incident"
	"github.com/pawl-go/pawl/internal/testbed/patience"
	"github.com/pawl-go/pawl/internal/testbed/pgtest"
)

// binary is the pawl program that these tests run.
var binary string

func TestMain(m *testing.M) {
	incident.Main()
	os.Exit(build(m))
}

func build(m *testing.M) int {
	dir, err := os.MkdirTemp("", "pawl-bin-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "pawl")
	if out, err := exec.Command("go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "go build: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// A result is the result of a run of the binary.
type result struct {
	code           int
	stdout, stderr string
}

// commandLimit bounds one run on a busy machine. A demo takes seconds on an idle one.
const commandLimit = 8 * time.Minute

// command prepares a run. The tester's own environment names no database for it.
func command(t *testing.T, database string, args ...string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), commandLimit)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, binary, args...)
	// prints its goroutines to its stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGQUIT) }
	cmd.WaitDelay = 20 * time.Second
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, "PG") && !strings.HasPrefix(variable, "PAWL_DATABASE_URL=") {
			cmd.Env = append(cmd.Env, variable)
		}
	}
	if database != "" {
		cmd.Env = append(cmd.Env, "PAWL_DATABASE_URL="+database)
	}
	return cmd
}

// pawl runs the binary with PAWL_DATABASE_URL set to database, or unset.
func pawl(t *testing.T, database string, args ...string) result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := command(t, database, args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return result{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// mustPawl runs the binary and expects success.
func mustPawl(t *testing.T, database string, args ...string) result {
	t.Helper()
	r := pawl(t, database, args...)
	if r.code != 0 {
		t.Fatalf("pawl %v: exit %d\n%s%s", args, r.code, r.stdout, r.stderr)
	}
	return r
}

// wantFailure checks the promise of every failure: the exit code, and nothing on stdout. stderr is
// one line with the problem and the next step, without a password or the context of the server's
// functions.
func wantFailure(t *testing.T, r result, code int, parts ...string) {
	t.Helper()
	if r.code != code {
		t.Errorf("exit %d, want %d", r.code, code)
	}
	if r.stdout != "" {
		t.Errorf("stdout: %q", r.stdout)
	}
	if strings.Count(r.stderr, "\n") != 1 || !strings.HasSuffix(r.stderr, "\n") || !strings.HasPrefix(r.stderr, "pawl: ") {
		t.Errorf("stderr is not one line of ours: %q", r.stderr)
	}
	if !strings.HasSuffix(r.stderr, ")\n") {
		t.Errorf("no next step: %q", r.stderr)
	}
	for _, part := range parts {
		if !strings.Contains(r.stderr, part) {
			t.Errorf("stderr lacks %q: %q", part, r.stderr)
		}
	}
	for _, never := range []string{"goroutine", "panic", "Usage:", "PL/pgSQL", "CONTEXT", secret} {
		if strings.Contains(r.stderr, never) {
			t.Errorf("stderr holds %q: %q", never, r.stderr)
		}
	}
}

// afterProgress checks and removes the progress line of the step that failed.
func afterProgress(t *testing.T, r result) result {
	t.Helper()
	first, rest, _ := strings.Cut(r.stderr, "\n")
	if !strings.HasSuffix(first, "ing 0001_init") {
		t.Errorf("progress: %q", first)
	}
	r.stderr = rest
	return r
}

// secret is the password of every URL in these tests.
const secret = "s3cr3t"

func empty(t *testing.T) string {
	t.Helper()
	return pgtest.URL(t, pgtest.Template{Name: "empty"})
}

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func exec1(t *testing.T, url, statement string) {
	t.Helper()
	conn := connect(t, url)
	defer conn.Close(t.Context())
	if _, err := conn.Exec(t.Context(), statement); err != nil {
		t.Fatal(err)
	}
}

func one[T any](t *testing.T, url, query string) T {
	t.Helper()
	conn := connect(t, url)
	defer conn.Close(t.Context())
	var value T
	if err := conn.QueryRow(t.Context(), query).Scan(&value); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return value
}

// shortDir is a directory that a server running as another user can reach, with a name short enough
// for a socket.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "pawl-t-")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	patience.Until(t, what, ok)
}

// A server is a pawl that runs until it is stopped.
type server struct {
	cmd    *exec.Cmd
	stdout *bufio.Reader
	stderr *bytes.Buffer
}

// serve starts a pawl and reads the line of JSON that it prints when it serves.
func serve(t *testing.T, cmd *exec.Cmd, into any) server {
	t.Helper()
	s := server{cmd: cmd, stderr: &bytes.Buffer{}}
	cmd.Stderr = s.stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	s.stdout = bufio.NewReader(out)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	line, err := s.stdout.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, into)
	}
	if err != nil {
		t.Fatalf("%v: %q %s", err, line, s.stderr)
	}
	return s
}

// browse sends a request as a client and returns the response.
func browse(t *testing.T, client *http.Client, method, address string, form url.Values, header ...string) (status int, body string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, address, strings.NewReader(form.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	answer, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(text)
}

// newBrowser is a client that keeps cookies.
func newBrowser(t *testing.T) *http.Client {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return &http.Client{Jar: jar}
}
