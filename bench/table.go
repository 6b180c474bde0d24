package main

import (
	"fmt"
	"math"
	"strings"
	"text/tabwriter"
)

// table returns a report as text.
func table(r Report) string {
	var out strings.Builder
	out.WriteString(settingsText(r.Settings) + "\n")
	if calm := calmText(r.Settings); calm != "" {
		out.WriteString(calm + "\n")
	}
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, row := range r.Rows {
		fmt.Fprintf(w, "\n%s\n", row.Title)
		fmt.Fprintln(w, strings.Join(heads(row), "\t")+"\t")
		for _, l := range row.Lines {
			fmt.Fprintln(w, strings.Join(cells(row, l), "\t")+"\t "+note(row, l))
		}
		_ = w.Flush()
	}
	return out.String()
}

func settingsText(s Settings) string {
	dirty := ""
	if s.Dirty {
		dirty = " with changes"
	}
	return fmt.Sprintf(`%s run, %d rounds, %d s; commit %s%s, %s
PostgreSQL %s: fsync %s, synchronous_commit %s, full_page_writes %s, shared_buffers %s, max_wal_size %s, on %s
%d cores (%s, load %s before), %s, pgx %s, River %s, pools of %d`,
		s.Mode, s.Rounds, s.Seconds, s.Commit, dirty, s.At,
		s.PostgreSQL, s.Fsync, s.SynchronousCommit, s.FullPageWrites, s.SharedBuffers, s.MaxWALSize, s.FileSystem,
		s.Cores, s.OS, s.LoadAverage, s.Go, s.Pgx, s.River, s.PoolConns)
}

// heads returns the columns of a row. cells returns its values.
func heads(row Row) []string {
	h := []string{"who", row.Unit, "min – max"}
	switch {
	case row.hasP99():
		return append(h, "p99", "× River")
	case !row.isRate():
		return h
	case row.hasClean():
		return append(h, "clean", "of clean", "× River")
	}
	return append(h, "× River", "× floor", "WAL kB/1000", "CPU s/1000: client", "server", "CPU × River")
}

func cells(row Row, l Line) []string {
	least, greatest := spread(l.values(func(r Round) float64 { return r.Value }))
	c := []string{l.Who, number(l.median()), number(least) + " – " + number(greatest)}
	part := func(of func(Round) float64) float64 { return median(l.values(of)) }
	river := ratio(row, l, func(l Line) bool { return l.Base })
	switch {
	case row.hasP99():
		return append(c, number(part(func(r Round) float64 { return r.P99 })), river)
	case !row.isRate():
		return c
	case row.hasClean():
		clean := part(func(r Round) float64 { return r.Clean })
		return append(c, number(clean), fmt.Sprintf("%.0f %%", 100*part(func(r Round) float64 { return r.Value / r.Clean })), river)
	}
	return append(c, river, ratio(row, l, func(l Line) bool { return l.Floor }),
		number(part(func(r Round) float64 { return r.WAL / 1000 })),
		seconds(part(func(r Round) float64 { return r.ClientCPU })), seconds(part(func(r Round) float64 { return r.ServerCPU })),
		thrift(row, l))
}

// thrift returns how many of a line's jobs the processors do in the time of one of River's. It
// holds even if others use the machine.
func thrift(row Row, l Line) string {
	river, ok := row.marked(func(l Line) bool { return l.Base })
	own := l.processorTime()
	if !ok || l.Base || !(own > 0) {
		return ""
	}
	return fmt.Sprintf("%.2f", river.processorTime()/own)
}

func seconds(v float64) string {
	if math.IsNaN(v) {
		return "–"
	}
	return fmt.Sprintf("%.4f", v)
}

func (row Row) hasP99() bool   { return row.any(func(r Round) bool { return r.P99 > 0 }) }
func (row Row) hasClean() bool { return row.any(func(r Round) bool { return r.Clean > 0 }) }

func (row Row) any(is func(Round) bool) bool {
	for _, l := range row.Lines {
		for _, r := range l.Rounds {
			if is(r) {
				return true
			}
		}
	}
	return false
}

// ratio returns a line's median divided by that of the marked line.
func ratio(row Row, l Line, mark func(Line) bool) string {
	to, ok := row.marked(mark)
	if !ok || mark(l) || !(to.median() > 0) || math.IsNaN(l.median()) {
		return ""
	}
	return fmt.Sprintf("%.2f", l.median()/to.median())
}

// note returns the text after a line: how it works, what happened, and whether its bars are met.
func note(row Row, l Line) string {
	notes := []string{l.How}
	if n := len(l.Rounds); n > 0 && l.Rounds[n-1].Said != "" {
		notes = append(notes, l.Rounds[n-1].Said)
	}
	for _, r := range l.Rounds {
		if r.Failed != "" {
			notes = append(notes, "FAILED: "+r.Failed)
		}
	}
	for _, v := range row.verdicts() {
		if v.bar.Who == l.Who {
			notes = append(notes, fmt.Sprintf("[bar %s: %s]", v.bar, v))
		}
	}
	return strings.Join(notes, "; ")
}

// number formats three significant digits, or all digits before the point with thousands
// separators.
func number(v float64) string {
	switch {
	case math.IsNaN(v):
		return "–"
	case v == float64(int64(v)) && v < 1000:
		return fmt.Sprintf("%d", int64(v))
	case v < 10:
		return fmt.Sprintf("%.2f", v)
	case v < 100:
		return fmt.Sprintf("%.1f", v)
	}
	digits := fmt.Sprintf("%.0f", v)
	for at := len(digits) - 3; at > 0; at -= 3 {
		digits = digits[:at] + "," + digits[at:]
	}
	return digits
}

func (row Row) isRate() bool {
	return row.Unit == perSec || row.Unit == commandsPerSec || row.Unit == messagesPerSec
}
