package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"
)

// A Report is all that a run leaves.
type Report struct {
	Settings Settings `json:"settings"`
	Rows     []Row    `json:"rows"`
}

// Settings are what the figures depend on.
type Settings struct {
	At                string `json:"at"`
	Commit            string `json:"commit"`
	Dirty             bool   `json:"dirty"` // the tree had changes of its own
	Suite             string `json:"suite,omitempty"`
	Mode              string `json:"mode"` // "full", "quick" or "tiny"
	Rounds            int    `json:"rounds"`
	Cores             int    `json:"cores"`
	OS                string `json:"os"`
	Go                string `json:"go"`
	Pgx               string `json:"pgx"`
	River             string `json:"river"`
	PostgreSQL        string `json:"postgresql"`
	FileSystem        string `json:"file_system"`
	Fsync             string `json:"fsync"`
	SynchronousCommit string `json:"synchronous_commit"`
	FullPageWrites    string `json:"full_page_writes"`
	SharedBuffers     string `json:"shared_buffers"`
	MaxWALSize        string `json:"max_wal_size"`
	PoolConns         int    `json:"pool_conns"`
	LoadAverage       string `json:"load_average"` // when the run began: what others did with the machine
	LoadAfter         string `json:"load_average_after,omitempty"`
	Seconds           int    `json:"seconds"`                   // the whole run
	Calm              bool   `json:"calm,omitempty"`            // each round waited until others were quiet
	Restless          int    `json:"restless_rounds,omitempty"` // rounds that began although they were not
	// StealMedian and StealLargest are the share of the processors' time that the host took during a round: absent where there is no /proc/stat.
	StealMedian  *float64 `json:"steal_median,omitempty"`
	StealLargest *float64 `json:"steal_largest,omitempty"`
}

// A Row is one thing measured on several contenders.
type Row struct {
	ID    string `json:"id"`
	Title string `json:"title"`
	Unit  string `json:"unit"`
	Less  bool   `json:"less_is_better,omitempty"`
	// XLabel says what X of each line counts, with its unit, such as "remembered keys". A row that has it is drawn as a chart.
	XLabel string `json:"x_label,omitempty"`
	Bars   []Bar  `json:"bars,omitempty"`
	Lines  []Line `json:"lines"`
}

// A Line is one contender in a row.
type Line struct {
	Who    string  `json:"who"`
	How    string  `json:"how"`
	Base   bool    `json:"base,omitempty"`  // River's line, which the ratios of the row are to
	Floor  bool    `json:"floor,omitempty"` // the floor of the row
	X      float64 `json:"x,omitempty"`     // how much of what the row's XLabel names
	Rounds []Round `json:"rounds"`
}

// A Round is one measurement. Fields that a row has no use for are zero.
type Round struct {
	Value     float64 `json:"value"`                 // in the unit of the row
	P99       float64 `json:"p99,omitempty"`         // in the unit of the row, whose Value is then the median
	Clean     float64 `json:"clean,omitempty"`       // the rate without what Value suffered from
	Count     int     `json:"count,omitempty"`       // jobs measured
	WAL       float64 `json:"wal_bytes_per_1000"`    // server, whole cluster
	ClientCPU float64 `json:"client_cpu_s_per_1000"` // this process and its children
	ServerCPU float64 `json:"server_cpu_s_per_1000"` // every process of the server
	Steal     float64 `json:"steal,omitempty"`       // share of the processors' time that the host took for others
	Said      string  `json:"said,omitempty"`        // what happened, in words
	Failed    string  `json:"failed,omitempty"`      // why there is no figure
}

// A Bar is what one line of a row must reach.
type Bar struct {
	Who     string  `json:"who"`               // the line that must reach it
	Of      string  `json:"of,omitempty"`      // the line it is a multiple of; empty: of its own clean rate, or absolute
	Factor  float64 `json:"factor"`            // at least this; at most, where less is better
	P99     bool    `json:"p99,omitempty"`     // it is the P99 that must reach it, not the median
	CPU     bool    `json:"cpu,omitempty"`     // it is jobs in a second of processor time, client's and server's, and not jobs in a second
	Meaning string  `json:"meaning,omitempty"` // in words, where it is no multiple of a line
}

func (l Line) values(of func(Round) float64) (values []float64) {
	for _, r := range l.Rounds {
		if r.Failed == "" {
			values = append(values, of(r))
		}
	}
	return values
}

func (l Line) median() float64 { return median(l.values(func(r Round) float64 { return r.Value })) }

// processorTime is what 1,000 jobs take of the client's and the server's, in seconds: the median of the rounds.
func (l Line) processorTime() float64 {
	return median(l.values(func(r Round) float64 { return r.ClientCPU + r.ServerCPU }))
}

func (r Row) line(who string) (Line, bool) {
	for _, l := range r.Lines {
		if l.Who == who {
			return l, true
		}
	}
	return Line{}, false
}

func (r Report) row(id string) (Row, bool) {
	for _, row := range r.Rows {
		if row.ID == id {
			return row, true
		}
	}
	return Row{}, false
}

func (r Row) marked(mark func(Line) bool) (Line, bool) {
	for _, l := range r.Lines {
		if mark(l) {
			return l, true
		}
	}
	return Line{}, false
}

// reached says how far the line got, as a multiple of what the bar is measured by.
func (r Row) reached(b Bar) (got float64, ok bool) {
	line, ok := r.line(b.Who)
	if !ok || len(line.values(func(r Round) float64 { return r.Value })) == 0 {
		return 0, false
	}
	switch of, found := r.line(b.Of); {
	case found && b.CPU:
		return of.processorTime() / line.processorTime(), line.processorTime() > 0
	case found:
		return line.median() / of.median(), of.median() > 0
	case b.Of != "":
		return 0, false
	case b.P99:
		return median(line.values(func(r Round) float64 { return r.P99 })), true
	case line.Rounds[0].Clean > 0:
		return median(line.values(func(r Round) float64 { return r.Value / r.Clean })), true
	}
	return line.median(), true
}

func (r Row) met(b Bar, got float64) bool {
	if r.Less {
		return got <= b.Factor
	}
	return got >= b.Factor
}

func (b Bar) String() string {
	if b.Meaning != "" {
		return b.Meaning
	}
	if b.CPU {
		return fmt.Sprintf("≥ %g× %s by processor time", b.Factor, b.Of)
	}
	return fmt.Sprintf("≥ %g× %s", b.Factor, b.Of)
}

// save writes a report with a line for the settings and one for each row.
func (r Report) save(file string) error {
	settings, err := json.Marshal(r.Settings)
	if err != nil {
		return err
	}
	var rows []string
	for _, row := range r.Rows {
		text, err := json.Marshal(row)
		if err != nil {
			return err
		}
		rows = append(rows, string(text))
	}
	return os.WriteFile(file, fmt.Appendf(nil, "{\"settings\": %s, \"rows\": [\n%s\n]}\n", settings, strings.Join(rows, ",\n")), 0o644)
}

// load reads a report that save has written. It refuses a file that is something else.
func load(file string) (r Report, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return r, err
	}
	if err = json.Unmarshal(text, &r); err == nil && (r.Settings.Mode == "" || len(r.Rows) == 0) {
		err = errors.New("it has no settings or no rows")
	}
	if err != nil {
		return r, fmt.Errorf("%s is not the report of a run: %w: write one with go run ./bench -json FILE", file, err)
	}
	return r, nil
}

func now() string { return time.Now().UTC().Format(time.RFC3339) }
