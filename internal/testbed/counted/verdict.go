package counted

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pawl-go/pawl/internal/testbed/checker"
)

// A Verdict is the result of a run.
type Verdict struct {
	Transport string    `json:"transport"`
	Run       string    `json:"run"`
	Mutant    string    `json:"mutant,omitempty"`
	Seed      uint64    `json:"seed"`
	Began     time.Time `json:"began"`
	Seconds   float64   `json:"seconds"`

	checker.Verdict
	Sent       int `json:"sent"`       // messages, including copies and retries
	Deliveries int `json:"deliveries"` // received by worker processes
	Again      int `json:"again"`      // deliveries of orders that were delivered before
	Duplicates int `json:"duplicates"` // deliveries that the inbox absorbed
	Unsettled  int `json:"unsettled"`  // messages and jobs left when progress stopped
	Inversions int `json:"inversions"` // effects out of the order of their lane

	Faults  map[string]int     `json:"faults,omitempty"`  // injected faults
	Figures map[string]float64 `json:"figures,omitempty"` // measurements
	Broken  []string           `json:"broken,omitempty"`  // promises of this run that did not hold
	// Idle are faults that did not happen, so the run proves nothing.
	Idle    []string `json:"idle,omitempty"`
	Stories []string `json:"stories,omitempty"` // of at most 3 violated orders

	mu sync.Mutex
}

// Held reports whether every promise held.
func (v *Verdict) Held() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.OK() && v.Unsettled+v.Inversions+len(v.Broken) == 0
}

// breaks records a promise that did not hold.
func (v *Verdict) breaks(format string, args ...any) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.Broken) < 20 {
		v.Broken = append(v.Broken, fmt.Sprintf(format, args...))
	}
}

// needs records a fault that did not happen.
func (v *Verdict) needs(happened bool, fault string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !happened {
		v.Idle = append(v.Idle, fault)
	}
}

// fault counts an injected fault.
func (v *Verdict) fault(what string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.Faults[what]++
}

// faults counts the faults whose names begin with prefix.
func (v *Verdict) faults(prefix string) (n int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for what, times := range v.Faults {
		if strings.HasPrefix(what, prefix) {
			n += times
		}
	}
	return n
}

// figure keeps the largest measurement of a name.
func (v *Verdict) figure(name string, value float64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.Figures[name] = max(v.Figures[name], float64(int64(value*1000))/1000)
}

// String returns the verdict as one log line.
func (v *Verdict) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s", v.Transport, v.Run)
	if v.Mutant != "" {
		fmt.Fprintf(&b, " (mutant: %s)", v.Mutant)
	}
	fmt.Fprintf(&b, ": %d orders, %d sent, %d deliveries, %d again, %d absorbed; %d effects, %d dead letters; doubled %d, lost %d, unsettled %d, out of order %d, "+
		"altered %d, unexpected %d, torn %d", v.Intents, v.Sent, v.Deliveries, v.Again, v.Duplicates, v.Effects, v.DeadLetters, v.Doubled, v.Lost,
		v.Unsettled, v.Inversions, v.Altered, v.Unexpected, v.Torn)
	for _, what := range slices.Sorted(maps.Keys(v.Faults)) {
		fmt.Fprintf(&b, "; %s ×%d", what, v.Faults[what])
	}
	for _, what := range slices.Sorted(maps.Keys(v.Figures)) {
		fmt.Fprintf(&b, "; %s %g", what, v.Figures[what])
	}
	fmt.Fprintf(&b, "; %.1f s, seed %d", v.Seconds, v.Seed)
	return b.String()
}

// counts returns what a reader of the proof wants to know, as one line.
func (v *Verdict) counts() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, %s: %d orders, %d sent, %d deliveries, %d effects, %d dead letters, %d lost, %d doubled", v.Transport, v.Run, v.Intents, v.Sent,
		v.Deliveries, v.Effects, v.DeadLetters, v.Lost, v.Doubled)
	for _, what := range slices.Sorted(maps.Keys(v.Faults)) {
		fmt.Fprintf(&b, "; %s ×%d", what, v.Faults[what])
	}
	return b.String()
}

// why lists the violations.
func (v *Verdict) why() string {
	all := slices.Concat(v.Broken, v.Violations)
	if v.Unsettled > 0 {
		all = append(all, fmt.Sprintf("%d messages and jobs were never settled", v.Unsettled))
	}
	return strings.Join(slices.Concat(all, v.Stories), "\n")
}

var reporting sync.Mutex

// append appends the verdict to a file as one line of JSON.
func (v *Verdict) append(file string) error {
	reporting.Lock()
	defer reporting.Unlock()
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(append(text, '\n'))
	if closed := f.Close(); err == nil {
		err = closed
	}
	return err
}
