package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// A demoRun is a demo whose processes and directories can be identified. Its binary and its TMPDIR
// are in its own directory, which every process of the run has on its command line.
type demoRun struct {
	*testing.T
	dir            string
	cmd            *exec.Cmd
	stdout, stderr buffer
}

// unusable is in the environment of every demo, which must ignore it.
const unusable = "postgres://u:" + secret + "@127.0.0.1:1/d"

func newDemo(t *testing.T, args ...string) *demoRun {
	t.Helper()
	return newDemoOf(t, binary, args...)
}

// newDemoOf is newDemo for another binary.
func newDemoOf(t *testing.T, binary string, args ...string) *demoRun {
	t.Helper()
	d := &demoRun{T: t, dir: shortDir(t)}
	// like /tmp, because the server may run as another user
	if err := os.Chmod(d.dir, 0o777|os.ModeSticky); err != nil {
		t.Fatal(err)
	}
	own := filepath.Join(d.dir, "pawl")
	if err := os.Link(binary, own); err != nil {
		if err := os.Symlink(binary, own); err != nil {
			t.Fatal(err)
		}
	}
	d.cmd = command(t, unusable, append([]string{"demo"}, args...)...)
	d.cmd.Path, d.cmd.Args[0] = own, own
	d.cmd.Env = append(d.cmd.Env, "TMPDIR="+d.dir)
	d.cmd.Stdout, d.cmd.Stderr = &d.stdout, &d.stderr
	return d
}

// run waits for the demo's end.
func (d *demoRun) run() result {
	d.Helper()
	_ = d.cmd.Run()
	return result{d.cmd.ProcessState.ExitCode(), d.stdout.String(), d.stderr.String()}
}

// result returns the result of a demo that has ended, with only the last line of stderr.
func (d *demoRun) result() result {
	lines := strings.SplitAfter(strings.TrimSpace(d.stderr.String()), "\n")
	return result{d.cmd.ProcessState.ExitCode(), d.stdout.String(), lines[len(lines)-1] + "\n"}
}

// processes lists the processes of this run whose command line contains all the words.
func (d *demoRun) processes(words ...string) (found []string) {
	d.Helper()
	out, err := exec.Command("ps", "-axww", "-o", "pid=,args=").Output()
	if err != nil {
		d.Fatal(err)
	}
next:
	for line := range strings.Lines(string(out)) {
		for _, word := range append(words, d.dir) {
			if !strings.Contains(line, word) {
				continue next
			}
		}
		found = append(found, strings.TrimSpace(line))
	}
	return found
}

// wantNothingLeft polls until no process and no directory of this run is left.
func (d *demoRun) wantNothingLeft() {
	d.Helper()
	var left []string
	defer func() {
		if len(left) > 0 {
			d.Logf("left behind: %q", left)
		}
	}()
	eventually(d.T, "nothing of the demo is left", func() bool {
		left, _ = filepath.Glob(filepath.Join(d.dir, "pawl-*"))
		left = append(left, d.processes()...)
		return len(left) == 0
	})
}

// A demoReport is the JSON that scripts may rely on.
type demoReport struct {
	Intents, Effects, Doubled, Lost, Deliveries, Kills, Altered, Torn, Unexpected, Unsettled *int
	DuplicatesAbsorbed                                                                       *int `json:"duplicates_absorbed"`
	DeadLetters                                                                              *int `json:"dead_letters"`
	Seconds                                                                                  *float64
	PerSecond                                                                                *float64 `json:"per_second"`
	Seed                                                                                     *uint64
	KilledAt                                                                                 []struct{ Point string } `json:"killed_at"`
	ChargeRequests                                                                           int                      `json:"charge_requests"`
	Unknown                                                                                  int
	Schema, Directory                                                                        string
}

// mustReport reads the one JSON object on stdout of a demo that kept the promise.
func mustReport(t *testing.T, r result) demoReport {
	t.Helper()
	if r.code != 0 {
		t.Fatalf("exit %d\n%s%s", r.code, r.stdout, r.stderr)
	}
	var report demoReport
	decoder := json.NewDecoder(strings.NewReader(r.stdout))
	if err := decoder.Decode(&report); err != nil {
		t.Fatalf("%v: %q", err, r.stdout)
	}
	if decoder.More() || strings.Count(r.stdout, "\n") != 1 {
		t.Errorf("stdout holds more than one line with one object: %q", r.stdout)
	}
	for name, n := range map[string]*int{"intents": report.Intents, "effects": report.Effects, "doubled": report.Doubled,
		"lost": report.Lost, "deliveries": report.Deliveries, "kills": report.Kills, "altered": report.Altered, "torn": report.Torn,
		"unexpected": report.Unexpected, "unsettled": report.Unsettled, "duplicates_absorbed": report.DuplicatesAbsorbed,
		"dead_letters": report.DeadLetters} {
		if n == nil {
			t.Fatalf("no field %s: %s", name, r.stdout)
		}
	}
	if report.Seconds == nil || report.PerSecond == nil || report.Seed == nil || report.KilledAt == nil {
		t.Fatalf("fields are missing: %s", r.stdout)
	}
	return report
}

// wantKept checks the promise: every intent that is not a dead letter took effect once.
func (r demoReport) wantKept(t *testing.T, intents, dead int) {
	t.Helper()
	got := fmt.Sprint(*r.Intents, *r.Effects, *r.DeadLetters, *r.Doubled, *r.Lost, *r.Altered, *r.Torn, *r.Unexpected, *r.Unsettled)
	if want := fmt.Sprint(intents, intents-dead, dead, 0, 0, 0, 0, 0, 0); got != want {
		t.Errorf("intents, effects, dead letters, doubled, lost, altered, torn, unexpected, unsettled: %s, want %s", got, want)
	}
	t.Logf("counted: %s: %d intents, %d deliveries, %d workers killed, %d effects, %d dead letters, %d lost, %d doubled", t.Name(), *r.Intents, *r.Deliveries, *r.Kills, *r.Effects,
		*r.DeadLetters, *r.Lost, *r.Doubled)
}

// A buffer may be read while a process writes.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
