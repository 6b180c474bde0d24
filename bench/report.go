package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"
)

// A Report is the result of a run.
type Report struct {
	Settings Settings `json:"settings"`
	Rows     []Row    `json:"rows"`
}

// Settings are the conditions of the figures.
type Settings struct {
	At                string `json:"at"`
	Commit            string `json:"commit"`
	Dirty             bool   `json:"dirty"` // the tree had uncommitted changes
	Mode              string `json:"mode"`  // "full", "quick" or "tiny"
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
	LoadAverage       string `json:"load_average"` // at the start of the run: the load by others
	LoadAfter         string `json:"load_average_after,omitempty"`
	Seconds           int    `json:"seconds"` // the whole run
	// Calm means that each round waited until others were quiet.
	Calm bool `json:"calm,omitempty"`
	// Restless counts the rounds that started although others were busy.
	Restless int `json:"restless_rounds,omitempty"`
	// StealMedian and StealLargest are the share of processor time that the host took during a
	// round. They are absent without /proc/stat.
	StealMedian  *float64 `json:"steal_median,omitempty"`
	StealLargest *float64 `json:"steal_largest,omitempty"`
}

// A Row is one figure measured for several contenders.
type Row struct {
	ID    string `json:"id"`
	Title string `json:"title"`
	Unit  string `json:"unit"`
	Less  bool   `json:"less_is_better,omitempty"`
	Bars  []Bar  `json:"bars,omitempty"`
	Lines []Line `json:"lines"`
}

// A Line is one contender in a row.
type Line struct {
	Who    string  `json:"who"`
	How    string  `json:"how"`
	Base   bool    `json:"base,omitempty"`  // River's line, the base of the row's ratios
	Floor  bool    `json:"floor,omitempty"` // the floor of the row
	Rounds []Round `json:"rounds"`
}

// A Round is one measurement. Fields that its row does not use are zero.
type Round struct {
	Value float64 `json:"value"` // in the unit of the row
	// P99 is in the unit of the row. If it is set, Value is the median.
	P99       float64 `json:"p99,omitempty"`
	Clean     float64 `json:"clean,omitempty"`       // the rate without the disturbance of Value
	Count     int     `json:"count,omitempty"`       // measured jobs
	WAL       float64 `json:"wal_bytes_per_1000"`    // of the whole cluster
	ClientCPU float64 `json:"client_cpu_s_per_1000"` // of this process and its children
	ServerCPU float64 `json:"server_cpu_s_per_1000"` // of all processes of the server
	Steal     float64 `json:"steal,omitempty"`       // share of processor time that the host took
	Said      string  `json:"said,omitempty"`        // description of what happened
	Failed    string  `json:"failed,omitempty"`      // why there is no figure
}

// A Bar is a target for one line of a row.
type Bar struct {
	Who string `json:"who"` // the line that must reach it
	// Of is the line that Factor is a multiple of. If it is empty, the bar is absolute, or relative
	// to the own clean rate.
	Of     string  `json:"of,omitempty"`
	Factor float64 `json:"factor"`        // lower bound, or upper bound if less is better
	P99    bool    `json:"p99,omitempty"` // applies to the P99 instead of the median
	// CPU compares jobs per second of processor time (client and server) instead of jobs per
	// second.
	CPU     bool   `json:"cpu,omitempty"`
	Meaning string `json:"meaning,omitempty"` // description, if it is no multiple of a line
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

// processorTime returns the median processor time of client and server for 1,000 jobs, in seconds.
func (l Line) processorTime() float64 {
	return median(l.values(func(r Round) float64 { return r.ClientCPU + r.ServerCPU }))
}

func (r Row) line(who string) (Line, bool) {
	return r.marked(func(l Line) bool { return l.Who == who })
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

// reached returns the line's figure as a multiple of the bar's reference.
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

// save writes a report with one line for the settings and one for each row.
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

// load reads a report that save has written. It refuses other files.
func load(file string) (r Report, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return r, err
	}
	if err = json.Unmarshal(text, &r); err == nil && (r.Settings.Mode == "" || len(r.Rows) == 0) {
		err = errors.New("it has no settings or no rows")
	}
	if err != nil {
		return r, fmt.Errorf("%s is not a run's report: %w: write one with go run ./bench -json FILE", file, err)
	}
	return r, nil
}

func now() string { return time.Now().UTC().Format(time.RFC3339) }
