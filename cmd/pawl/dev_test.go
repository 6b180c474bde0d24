package main

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// A devServer is a running `pawl dev postgres`.
type devServer struct {
	URL    string
	PID    int
	cmd    *exec.Cmd
	stderr *bytes.Buffer
}

// startDev returns once the URL was printed.
func startDev(t *testing.T, dir string, args ...string) *devServer {
	t.Helper()
	cmd := command(t, "", append([]string{"dev", "postgres", "--json", "--dir", dir}, args...)...)
	s := &devServer{cmd: cmd, stderr: &bytes.Buffer{}}
	cmd.Stderr = s.stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if s.PID > 0 { // it writes into the test's directory until it has stopped
			eventually(t, "the server is gone", func() bool { return !running(s.PID) })
		}
	})
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err != nil {
		_ = cmd.Wait()
		t.Fatalf("%v: %s", err, s.stderr)
	}
	if err := json.Unmarshal(line, s); err != nil {
		t.Fatalf("%v: %q", err, line)
	}
	return s
}

// end sends sig and returns the exit code.
func (s *devServer) end(t *testing.T, sig os.Signal) int {
	t.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
	_ = s.cmd.Wait()
	return s.cmd.ProcessState.ExitCode()
}

// running reports whether process pid is alive and, if /proc exists, not a zombie.
func running(pid int) bool {
	if syscall.Kill(pid, 0) == syscall.ESRCH {
		return false
	}
	if _, err := os.Stat("/proc/self/cmdline"); err != nil {
		return true
	}
	cmdline, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
	return err == nil && len(cmdline) > 0
}

// A development server's data stays, with Pawl's schema installed from the start.
func TestDevPostgres_KeepsDataBetweenStarts(t *testing.T) {
	t.Parallel()
	dir, url := filepath.Join(shortDir(t), "pgdata"), ""
	for start, sig := range []os.Signal{os.Interrupt, syscall.SIGTERM, os.Interrupt} {
		s := startDev(t, dir)
		if url = cmp.Or(url, s.URL); s.URL != url {
			t.Errorf("start %d: the URL was %s and is %s", start, url, s.URL)
		}
		mustPawl(t, s.URL, "migrate", "check")
		exec1(t, s.URL, "select pawl_v1.job_enqueue('q', 'k', 'a', '{}')")
		if n := one[int](t, s.URL, "select count(*) from pawl.job"); n != start+1 {
			t.Errorf("start %d: %d rows", start, n)
		}
		if fsync := one[string](t, s.URL, "show fsync"); fsync != "on" {
			t.Errorf("fsync is %s", fsync)
		}
		if code := s.end(t, sig); code != 0 || running(s.PID) {
			t.Errorf("%v: exit %d, server running %v: %s", sig, code, running(s.PID), s.stderr)
		}
		if !strings.Contains(s.stderr.String(), "export PAWL_DATABASE_URL='"+s.URL+"'") {
			t.Errorf("no hint: %s", s.stderr)
		}
	}
}

// If pawl is killed, the server stops. The data stays, up to the last commit.
func TestDevPostgres_KilledLeavesNoServer(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(shortDir(t), "pgdata")
	s := startDev(t, dir)
	exec1(t, s.URL, "create table mine as select 42 as id")
	s.end(t, os.Kill)
	eventually(t, "the server is gone", func() bool { return !running(s.PID) })
	again := startDev(t, dir)
	if again.URL != s.URL {
		t.Errorf("the URL was %s and is %s", s.URL, again.URL)
	}
	if id := one[int](t, again.URL, "select id from mine"); id != 42 {
		t.Errorf("found %d", id)
	}
	if code := again.end(t, os.Interrupt); code != 0 {
		t.Errorf("exit %d", code)
	}
}

// Without --json stdout is only the URL, for a shell's $(...).
func TestDevPostgres_PrintsOneLine(t *testing.T) {
	t.Parallel()
	cmd := command(t, "", "dev", "postgres", "--no-migrate", "--dir", filepath.Join(shortDir(t), "pgdata"))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	lines := bufio.NewReader(out)
	url, err := lines.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	//   - -no-migrate
	wantFailure(t, pawl(t, strings.TrimSpace(url), "migrate", "check"), 1, "not installed")
	_ = cmd.Process.Signal(syscall.SIGTERM)
	if rest, err := lines.ReadString('\n'); rest != "" || err == nil {
		t.Errorf("stdout goes on with %q, %v", rest, err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// If the server ends by itself, the command ends and says so.
func TestDevPostgres_ServerEnds(t *testing.T) {
	t.Parallel()
	s := startDev(t, filepath.Join(shortDir(t), "pgdata"), "--no-migrate")
	if err := syscall.Kill(s.PID, syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	_ = s.cmd.Wait()
	lines := strings.SplitAfter(strings.TrimSpace(s.stderr.String()), "\n")
	wantFailure(t, result{s.cmd.ProcessState.ExitCode(), "", lines[len(lines)-1] + "\n"}, 1, "the server ended by itself", "start it again")
}

func TestDevPostgres_UnsuitableDirectory(t *testing.T) {
	t.Parallel()
	parent := shortDir(t)
	dev := func(dir string) result { return pawl(t, "", "dev", "postgres", "--dir", dir) }

	held := filepath.Join(parent, "held")
	startDev(t, held, "--no-migrate")
	wantFailure(t, dev(held), 1, "data directory is in use: "+held, "stop that process, or choose another directory")

	mine := filepath.Join(parent, "mine")
	if err := os.Mkdir(mine, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(mine, "thesis.txt"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	wantFailure(t, dev(mine), 1, "neither empty nor a PostgreSQL cluster", "choose another directory")
	wantFailure(t, dev(filepath.Join(mine, "thesis.txt")), 1, "not a directory", "choose another directory")
}

// The error has one line of the server's log: the one with the reason.
func TestDevPostgres_DamagedCluster(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(shortDir(t), "pgdata")
	s := startDev(t, dir, "--no-migrate")
	s.end(t, os.Interrupt)
	if err := os.WriteFile(filepath.Join(dir, "postgresql.conf"), []byte("no_such_setting = 1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	wantFailure(t, pawl(t, "", "dev", "postgres", "--dir", dir), 1, "the server ended before it answered: ", "postgresql.conf", "choose another directory")
}

// Without PostgreSQL on the machine the error is one line that says how to install it.
func TestDevPostgres_NoPostgreSQL(t *testing.T) {
	t.Parallel()
	cmd := command(t, "", "dev", "postgres", "--dir", filepath.Join(shortDir(t), "pgdata"))
	cmd.Env = append(cmd.Env, "PAWL_PG_BIN=/nowhere")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	_ = cmd.Run()
	wantFailure(t, result{cmd.ProcessState.ExitCode(), "", stderr.String()}, 1, "PAWL_PG_BIN")
}
