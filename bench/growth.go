package main

import (
	"errors"
	"flag"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// growthSizes are the sizes at which the growth rows are measured, one line per size.
type growthSizes struct {
	keys      []int // remembered
	jobs      []int // waiting
	processes []int // worker processes
	octets    []int // of a payload
}

var (
	growthFull = growthSizes{keys: []int{0, 1_000_000, 10_000_000}, jobs: []int{100_000, 1_000_000},
		processes: []int{1, 2, 4, 8}, octets: []int{100, 10_240, 1_048_576}}
	growthQuick = growthSizes{keys: []int{0, 100_000}, jobs: []int{20_000, 100_000},
		processes: []int{1, 2}, octets: []int{100, 10_240, 1_048_576}}
)

// growthAsked contains the sizes of the flags. A list is empty if its flag was not set.
var growthAsked = struct {
	keys, jobs, processes, octets sizeList
	quick                         func() bool
}{
	keys: sizeList{least: 0, most: 1_000_000_000},
	// Fewer would be done before a claim can be timed.
	jobs:      sizeList{least: 1000, most: 100_000_000},
	processes: sizeList{least: 1, most: maxTeam},
	octets:    sizeList{least: stampOctets, most: 4 << 20}, // job_enqueue refuses more
	quick:     func() bool { return false },
}

// growthFlags registers the flags of the sizes. The defaults depend on -quick.
func growthFlags(fs *flag.FlagSet) {
	a := &growthAsked
	for _, f := range []struct {
		name       string
		list       *sizeList
		full, fast []int
		what       string
	}{
		{"keys", &a.keys, growthFull.keys, growthQuick.keys, "remembered keys; 50000000 takes 40 GB of disk and is best run alone: -only growth-keys"},
		{"jobs", &a.jobs, growthFull.jobs, growthQuick.jobs, "waiting jobs"},
		{"processes", &a.processes, growthFull.processes, growthQuick.processes, "worker processes"},
		{"octets", &a.octets, growthFull.octets, growthQuick.octets, "octets of a payload"},
	} {
		fs.Var(f.list, f.name, fmt.Sprintf("growth: `sizes` with commas between: %s (default %s, with -quick %s)", f.what, joined(f.full), joined(f.fast)))
	}
	a.quick = func() bool {
		f := fs.Lookup("quick")
		return f != nil && f.Value.String() == "true"
	}
}

// growthPlans returns the rows that show the cost of size.
func growthPlans() []plan {
	a, g := growthAsked, growthFull
	if a.quick() {
		g = growthQuick
	}
	for _, asked := range []struct{ by, of *[]int }{{&a.keys.sizes, &g.keys}, {&a.jobs.sizes, &g.jobs}, {&a.processes.sizes, &g.processes}, {&a.octets.sizes, &g.octets}} {
		if len(*asked.by) > 0 {
			*asked.of = *asked.by
		}
	}
	return g.plans()
}

func (g growthSizes) plans() []plan {
	return slices.Concat(g.keyPlans(), g.jobPlans(), g.processPlans(), g.octetPlans(), g.claimPlans())
}

const (
	growthRounds = 3 // of a rate
	waitRounds   = 2 // of a row of times, each with hundreds of samples
)

// growthRow returns a row with one line per size.
func growthRow(row Row, rounds int, sizes []int, of func(n int) entry) plan {
	p := plan{Row: row, rounds: rounds}
	for _, n := range sizes {
		p.entries = append(p.entries, of(n))
	}
	return p
}

// grown returns Pawl's line at one size.
func grown(n int, of, how string) Line {
	return Line{Who: "Pawl, " + number(float64(n)) + " " + of, How: how, X: float64(n)}
}

// rateTime is how long the full rate is measured. Half of it is then offered.
func rateTime(s scale) time.Duration { return max(s.enqueue, time.Second) }

var errNothingDone = errors.New("no work was completed during the measurement: the machine is too busy")

// A halfLoad is half of the rate that the first measure of a row sustained. All lines of the row
// are measured at that rate.
type halfLoad struct{ perSecond float64 }

func (h *halfLoad) of(sustained func() (perSecond float64, err error)) (float64, error) {
	if h.perSecond > 0 {
		return h.perSecond, nil
	}
	full, err := sustained()
	if err == nil && full == 0 {
		err = errNothingDone
	}
	h.perSecond = full / 2
	return h.perSecond, err
}

// A sizeList is a flag with comma-separated whole numbers.
type sizeList struct {
	sizes       []int
	least, most int
}

func (l *sizeList) String() string { return joined(l.sizes) }

// Set parses the list. The flag package prints the error and ends the program.
func (l *sizeList) Set(text string) error {
	var sizes []int
	for _, part := range strings.Split(text, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(part))
		if err != nil || n < l.least || n > l.most {
			return fmt.Errorf("%q is not a whole number from %d to %d: pass one or more with commas between, such as %d,%d", part, l.least, l.most, l.least, middle(l.least, l.most))
		}
		if slices.Contains(sizes, n) {
			return fmt.Errorf("%d is there twice: pass each size once", n)
		}
		sizes = append(sizes, n)
	}
	l.sizes = sizes
	return nil
}

// middle returns a round number between two bounds for an example.
func middle(least, most int) int {
	return int(math.Pow(10, math.Round(math.Log10(float64(max(least, 1))*float64(most))/2)))
}

func joined(sizes []int) string {
	texts := make([]string, len(sizes))
	for i, n := range sizes {
		texts[i] = strconv.Itoa(n)
	}
	return strings.Join(texts, ",")
}
