package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// failuresShown bounds the lines of failures that are repeated at the end of a stage.
const failuresShown = 300

var (
	// passing matches the lines of go test -v about passing tests.
	passing = regexp.MustCompile(`^\s*(=== |--- (PASS|SKIP)|PASS$)`)
	failing = regexp.MustCompile(`^\s*--- FAIL: (\S+)`)
	seed    = regexp.MustCompile(`\bseed[ =:]+([0-9]+)`)
	// counting matches a line that a test logs with t.Log("counted: …"), or that a script prints.
	counting = regexp.MustCompile(`^(?:\s+\w+\.go:[0-9]+: )?counted: (.+)$`)
)

// run runs a stage. The caller adds the commit and the inputs to the result. An error means that
// the stage did not start.
func (s stage) run(ctx context.Context, out io.Writer) (result, error) {
	words, err := s.command()
	if err != nil {
		return result{}, fmt.Errorf("stage %s: %w", s.name, err)
	}
	log, err := os.CreateTemp("", "proof-"+s.name+"-*.log")
	if err != nil {
		return result{}, err
	}
	defer log.Close()
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	// A stage starts child processes. They end with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = time.Minute
	sieve := &sieve{out: out, log: log}
	cmd.Stdout, cmd.Stderr = sieve, sieve
	witness := startWitness()
	r := result{Stage: s.name, Began: time.Now().UTC().Truncate(time.Second)}
	err = cmd.Run()
	sieve.flush()
	r.Seconds = int(time.Since(r.Began).Seconds())
	r.StallMS, r.Load = witness.stop(), loadAverage()
	r.Seeds, r.Counted, r.Failures = sieve.seeds, sieve.counted, sieve.failures
	var exit *exec.ExitError
	switch {
	case err == nil && len(r.Failures) == 0:
		return r, os.Remove(log.Name())
	case err != nil && !errors.As(err, &exit):
		return result{}, fmt.Errorf("stage %s: %w", s.name, err)
	case len(r.Failures) == 0:
		r.Failures = []string{err.Error()}
	}
	fmt.Fprintf(out, "\n== %s failed; all that it printed is in %s\n%s\n", s.name, log.Name(), strings.Join(sieve.last, "\n"))
	return r, nil
}

// A sieve writes the output of a stage to a log, prints the lines that are not about passing tests,
// and collects seeds, counts and failures.
type sieve struct {
	out, log io.Writer
	rest     []byte
	last     []string // the last lines that are not about passing tests
	seeds    []string
	counted  []string
	failures []string
}

func (s *sieve) Write(p []byte) (int, error) {
	if n, err := s.log.Write(p); err != nil {
		return n, err
	}
	s.rest = append(s.rest, p...)
	for {
		line, rest, found := bytes.Cut(s.rest, []byte("\n"))
		if !found {
			return len(p), nil
		}
		s.take(string(line))
		s.rest = rest
	}
}

func (s *sieve) flush() {
	if len(s.rest) > 0 {
		s.take(string(s.rest))
		s.rest = nil
	}
}

func (s *sieve) take(line string) {
	if m := seed.FindStringSubmatch(line); m != nil && !slices.Contains(s.seeds, m[1]) {
		s.seeds = append(s.seeds, m[1])
	}
	if m := counting.FindStringSubmatch(line); m != nil {
		s.counted = append(s.counted, m[1])
	}
	if m := failing.FindStringSubmatch(line); m != nil {
		s.failures = append(s.failures, m[1])
	}
	if passing.MatchString(line) {
		return
	}
	// Tests indent their log lines. The log file has all lines, and the end of a failed stage shows
	// the last ones.
	s.last = append(s.last, line)
	if len(s.last) > failuresShown {
		s.last = s.last[1:]
	}
	if !strings.HasPrefix(line, "    ") {
		fmt.Fprintln(s.out, line)
	}
}

// A witness measures stalls of the machine: the largest delay of its short sleeps.
type witness struct {
	end     chan struct{}
	longest atomic.Int64
}

func startWitness() *witness {
	w := &witness{end: make(chan struct{})}
	go func() {
		const nap = 50 * time.Millisecond
		for {
			began := time.Now()
			select {
			case <-w.end:
				return
			case <-time.After(nap):
			}
			if late := time.Since(began) - nap; int64(late) > w.longest.Load() {
				w.longest.Store(int64(late))
			}
		}
	}()
	return w
}

// stop returns the longest stall, in milliseconds.
func (w *witness) stop() int64 {
	close(w.end)
	return time.Duration(w.longest.Load()).Milliseconds()
}

// loadAverage returns the system's load over five minutes, or "" without /proc.
func loadAverage() string {
	f, err := os.Open("/proc/loadavg")
	if err != nil {
		return ""
	}
	defer f.Close()
	line, _ := bufio.NewReader(f).ReadString('\n')
	if words := strings.Fields(line); len(words) > 1 {
		return words[1]
	}
	return ""
}
