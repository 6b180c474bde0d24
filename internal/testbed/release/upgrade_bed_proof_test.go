//go:build proof

package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// An upgrade is a database, a queue and the processes that use them.
type upgrade struct {
	t             *testing.T
	database, sqs string
	all           []*process
}

// A process is a program of the rehearsal that runs.
type process struct {
	*exec.Cmd
	build  string
	stdout *bufio.Reader
	stderr string // the name of a file
}

// start starts a worker of a build, or a server if build is empty.
func (u *upgrade) start(build, name string, args ...string) *process {
	u.t.Helper()
	p := &process{Cmd: exec.Command(name, args...), build: build}
	p.Dir, p.Env = u.t.TempDir(), append(os.Environ(), "PAWL_DATABASE_URL="+u.database, "DATABASE_URL=", "SQS="+u.sqs, "BUILD="+build, "PAWL_MAX_CONNS=12")
	p.stderr = filepath.Join(p.Dir, "stderr")
	stderr, err := os.Create(p.stderr)
	must(u.t, err)
	defer stderr.Close()
	p.Stderr = stderr
	out, err := p.StdoutPipe()
	must(u.t, err)
	p.stdout = bufio.NewReader(out)
	must(u.t, p.Start())
	u.t.Cleanup(func() {
		end := syscall.SIGKILL
		if build == "" {
			end = syscall.SIGTERM // a server, which removes what it has made
		}
		_ = p.Process.Signal(end)
		_ = p.Wait()
	})
	u.all = append(u.all, p)
	return p
}

// stop sends SIGTERM and expects an end in order.
func (u *upgrade) stop(all ...*process) {
	u.t.Helper()
	for _, p := range all {
		must(u.t, p.Process.Signal(syscall.SIGTERM))
	}
	for _, p := range all {
		if err := p.Wait(); err != nil {
			u.t.Errorf("a worker of %s ended with %v\n%s", p.build, err, p.said())
		}
	}
}

// kill sends SIGKILL.
func (u *upgrade) kill(p *process) {
	u.t.Helper()
	must(u.t, p.Process.Kill())
	_ = p.Wait()
}

// query returns the rows of a query, one a line. psql shares nothing with Pawl.
func (u *upgrade) query(sql string) string {
	u.t.Helper()
	out, err := exec.Command("psql", "-XAtqv", "ON_ERROR_STOP=1", "-d", u.database, "-c", sql).CombinedOutput()
	if err != nil {
		u.t.Fatalf("psql: %v\n%s", err, out)
	}
	return strings.TrimSpace(string(out))
}

func (u *upgrade) number(sql string) int {
	u.t.Helper()
	n, err := strconv.Atoi(u.query(sql))
	must(u.t, err)
	return n
}

// until waits for a condition.
func (u *upgrade) until(what string, holds func() bool) {
	u.t.Helper()
	for deadline := time.Now().Add(3 * time.Minute); !holds(); time.Sleep(100 * time.Millisecond) {
		if said := u.unexpected(); said != "" {
			u.t.Fatalf("waiting until %s, workers said\n%s", what, said)
		}
		if time.Now().After(deadline) {
			u.t.Fatalf("after three minutes it is not so that %s\n%s", what, u.query("select build, kind, enqueued_by, count(*) from effect group by 1, 2, 3 order by 1, 2, 3"))
		}
	}
}

// works waits until each of the workers has written more effects of each kind.
func (u *upgrade) works(workers ...*process) {
	u.t.Helper()
	count := func() (all []int) {
		for _, p := range workers {
			for _, kind := range []string{"message", "job"} {
				all = append(all, u.number(fmt.Sprintf("select count(*) from effect where kind = '%s' and process = %d", kind, p.Process.Pid)))
			}
		}
		return all
	}
	const enough = 60
	first := count()
	u.until("all workers work", func() bool {
		for i, n := range count() {
			if n < first[i]+enough {
				return false
			}
		}
		return true
	})
}

// expected are the lines of a worker's log that this rehearsal causes: its planned failures, the
// faults of its queue, the tables that a migration locks, and deliveries of workers that were
// killed. All other lines are of the level INFO and have no error.
var expected = regexp.MustCompile(`a planned failure|error="?sqs\.|error="?table\.locked: pawl\.|^\S+ \S+ INFO pawl: (suspect|stale_takeover) `)

// unexpected returns the other lines of the workers' logs.
func (u *upgrade) unexpected() string {
	var all strings.Builder
	for _, p := range u.all {
		log, err := os.ReadFile(p.stderr)
		must(u.t, err)
		for line := range strings.Lines(string(log)) {
			if p.build != "" && !expected.MatchString(line) && (!strings.Contains(line, " INFO ") || strings.Contains(line, " error=")) {
				fmt.Fprintf(&all, "%s: %s", p.build, line)
			}
		}
	}
	return all.String()
}

// said returns what a process has written to its stderr.
func (p *process) said() string {
	text, err := os.ReadFile(p.stderr)
	return fmt.Sprint(string(text), err)
}
