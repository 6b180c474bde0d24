// Command rerun repeats tests that timed out because of the machine. On a machine that stalls for
// minutes, a wait of package patience fails with a text that begins with "TIMING:". If no other
// test failed in the output of go test, each such test must pass three times alone.
//
//	go run ./proof/rerun OUTPUT
//
// No test is repeated if more than two timed out or if anything failed in another way. The same
// applies if a test would enter the ledger, proof/flakes.jsonl, a third time within 14 days. Such a
// test must be repaired or moved out of the gate.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"time"
)

const (
	ledger    = "proof/flakes.jsonl"
	mostTests = 2                   // per run
	mostTimes = 2                   // times that a test may be in the ledger, within
	memory    = 14 * 24 * time.Hour // this duration
	passes    = 3                   // required passes of each test
)

// A flake is a line of the ledger: a test that timed out and passed when repeated.
type flake struct {
	At      time.Time `json:"at"`
	Commit  string    `json:"commit"`
	Package string    `json:"package"`
	Test    string    `json:"test"`
	Waited  string    `json:"waited"` // the awaited condition
	Load    string    `json:"load"`   // load average over fifteen minutes
	says    bool      // it has a message of its own
}

func main() {
	if len(os.Args) != 2 || strings.HasPrefix(os.Args[1], "-") {
		fmt.Fprintln(os.Stderr, "usage: go run ./proof/rerun OUTPUT\n\nOUTPUT is a file with what go test printed. Tests that failed with TIMING: alone are played again.")
		os.Exit(2)
	}
	if err := run(context.Background(), os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "rerun:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, file string) error {
	output, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	waited, err := inVain(string(output))
	if err != nil {
		return err
	}
	known, err := readLedger()
	if err != nil {
		return err
	}
	for _, w := range waited {
		if n := times(known, w, time.Now()); n >= mostTimes {
			return fmt.Errorf("%s waited in vain %d times before, within 14 days: repair it, or move it out of the gate", w.Test, n)
		}
	}
	for i := range waited {
		w := &waited[i]
		fmt.Printf("== %s of %s, %d times\n", w.Test, w.Package, passes)
		cmd := exec.CommandContext(ctx, "go", "test", "-race", "-count", fmt.Sprint(passes), "-timeout", "40m", "-run", pattern(w.Test), w.Package)
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("%s fails by itself: %w", w.Test, err)
		}
	}
	return note(ctx, waited)
}

var (
	failure = regexp.MustCompile(`^ *--- FAIL: (\S+)`)
	broken  = regexp.MustCompile(`^panic:|^fatal error:|WARNING: DATA RACE|\[(build|setup) failed\]`)
	message = regexp.MustCompile(`^ *\S+\.go:\d+: `)
	timing  = regexp.MustCompile(`^ *\S+\.go:\d+: TIMING: waited in vain: (.*)`)
	ended   = regexp.MustCompile(`^FAIL\t(\S+)\t`)
)

// inVain returns the tests that timed out in the output of go test. It fails if anything else
// failed.
func inVain(output string) (all []flake, err error) {
	var (
		open  []flake // failed tests of the package whose result line is still to come
		lines = strings.Split(output, "\n")
	)
	for _, line := range lines {
		if broken.MatchString(line) {
			return nil, fmt.Errorf("nothing is played again after: %s", line)
		}
		if m := failure.FindStringSubmatch(line); m != nil {
			if n := len(open); n > 0 && !open[n-1].says && strings.HasPrefix(m[1], open[n-1].Test+"/") {
				open = open[:n-1] // its subtest has the reason
			}
			open = append(open, flake{Test: m[1]})
		}
		if len(open) > 0 {
			last := &open[len(open)-1]
			last.says = last.says || message.MatchString(line)
			if m := timing.FindStringSubmatch(line); m != nil {
				last.Waited = m[1]
			}
		}
		if m := ended.FindStringSubmatch(line); m != nil {
			if len(open) == 0 {
				return nil, fmt.Errorf("%s failed, and no test of it", m[1])
			}
			for _, f := range open {
				if f.Waited == "" {
					return nil, fmt.Errorf("%s of %s failed, and did not wait in vain", f.Test, m[1])
				}
				f.Package = m[1]
				all = append(all, f)
			}
			open = nil
		}
	}
	switch {
	case len(open) > 0 || len(all) == 0:
		return nil, errors.New("the output names no test that waited in vain")
	case len(all) > mostTests:
		return nil, fmt.Errorf("%d tests waited in vain: at most %d are played again", len(all), mostTests)
	}
	return all, nil
}

// pattern returns a regular expression that matches one test.
func pattern(test string) string {
	parts := strings.Split(test, "/")
	for i, p := range parts {
		parts[i] = "^" + regexp.QuoteMeta(p) + "$"
	}
	return strings.Join(parts, "/")
}

func readLedger() (all []flake, err error) {
	text, err := os.ReadFile(ledger)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for n, line := range bytes.Split(bytes.TrimSpace(text), []byte("\n")) {
		var f flake
		if len(line) == 0 {
			continue
		}
		if err := json.Unmarshal(line, &f); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", ledger, n+1, err)
		}
		all = append(all, f)
	}
	return all, nil
}

// times returns how often a test is in the ledger within the last 14 days.
func times(known []flake, w flake, now time.Time) (n int) {
	for _, k := range known {
		if k.Package == w.Package && k.Test == w.Test && now.Sub(k.At) < memory {
			n++
		}
	}
	return n
}

// note adds tests to the ledger.
func note(ctx context.Context, waited []flake) error {
	commit, err := exec.CommandContext(ctx, "git", "rev-parse", "--short=10", "HEAD").Output()
	if err != nil {
		return fmt.Errorf("git rev-parse: %w", err)
	}
	load, _ := os.ReadFile("/proc/loadavg")
	f, err := os.OpenFile(ledger, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	for _, w := range waited {
		w.At, w.Commit = time.Now().UTC().Truncate(time.Second), strings.TrimSpace(string(commit))
		if parts := strings.Fields(string(load)); len(parts) > 2 {
			w.Load = parts[2]
		}
		line, err := json.Marshal(w)
		if err != nil {
			return err
		}
		if _, err := f.Write(append(line, '\n')); err != nil {
			return err
		}
		fmt.Printf("passed, and is in %s, to be committed: %s\n", ledger, line)
	}
	return f.Close()
}
