package main

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// takeaway returns the summary, sentences that follow from the figures. It omits what the run has
// not measured.
func takeaway(r Report) string {
	return strings.Join(slices.DeleteFunc([]string{speed(r), patience(r), price(r)}, func(s string) bool { return s == "" }), " ")
}

// speed returns the sentences about rates of jobs.
func speed(r Report) string {
	var parts []string
	for _, c := range []struct{ row, who, text string }{
		{"noop", "Pawl", "Pawl runs %s as many jobs a second as River if they do nothing."},
		{"step", "Pawl", "If each writes a row in the transaction that ends it, Pawl runs %s as many as River."},
		{"effect-batch", "Pawl, batch", "In batches of 100 of these, Pawl runs %s as many as River."},
	} {
		if f, ok := r.fold(c.row, c.who, "River"); ok {
			parts = append(parts, fmt.Sprintf(c.text, f))
		}
	}
	return strings.Join(parts, " ")
}

// patience returns the sentences about how long a job waits, also if its worker dies or freezes.
func patience(r Report) string {
	var parts []string
	if own, _, ok := r.times("pickup", "Pawl"); ok {
		text := "An idle worker starts a job " + own + " after it was enqueued"
		if theirs, _, ok := r.times("pickup", "River"); ok {
			text += " (River: " + theirs + ")"
		}
		parts = append(parts, text+".")
	}
	if _, tail, ok := r.times("crash", "Pawl"); ok {
		parts = append(parts, "If a worker is killed by SIGKILL, another one starts its job within "+tail+".")
	}
	if rows, ok := r.zombieRows(); ok {
		parts = append(parts, "If a worker is frozen past its lease, its job writes "+counted(rows, "row")+" in all.")
	}
	return strings.Join(parts, " ")
}

// price returns the sentences about what is slower than with alternatives.
func price(r Report) string {
	var parts []string
	if f, ok := r.fold("command-fresh", "Pawl", "by hand"); ok {
		parts = append(parts, "A command under an idempotency key runs at "+f+" the rate of a table of keys written by hand.")
	}
	if f, ok := r.fold("noop", "loop", "Pawl"); ok && !strings.HasPrefix(f, "0.") {
		parts = append(parts, "A loop without leases and retries runs "+f+" as many jobs as Pawl.")
	}
	if faster, all := r.riverFaster(); all > 0 {
		parts = append(parts, fmt.Sprintf("River is ahead in %d of %s%s.", len(faster), counted(all, "shared row"), linked(faster)))
	}
	return strings.Join(parts, " ")
}

// fold returns one line's figure as a multiple of another's, as text.
func (r Report) fold(id, who, of string) (text string, ok bool) {
	row, _ := r.row(id)
	a, foundA := row.line(who)
	b, foundB := row.line(of)
	f := a.median() / b.median()
	switch {
	case !foundA || !foundB || math.IsNaN(f) || math.IsInf(f, 0):
		return "", false
	case f < 0.995:
		return fmt.Sprintf("%.2f times", f), true
	case f < 9.95:
		return fmt.Sprintf("%.1f times", f), true
	}
	return fmt.Sprintf("%.0f times", f), true
}

// times returns the median and the p99 of a line whose unit is ms, as text.
func (r Report) times(id, who string) (middle, tail string, ok bool) {
	row, _ := r.row(id)
	l, found := row.line(who)
	p99 := median(l.values(func(r Round) float64 { return r.P99 }))
	if !found || math.IsNaN(l.median()) || math.IsNaN(p99) {
		return "", "", false
	}
	return duration(l.median()), duration(p99), true
}

func duration(ms float64) string {
	if ms >= 1000 {
		return fmt.Sprintf("%.1f s", ms/1000)
	}
	return number(ms) + " ms"
}

// zombieRows returns the most rows that a line of Pawl's wrote for one job.
func (r Report) zombieRows() (rows int, ok bool) {
	row, _ := r.row("zombie")
	for _, l := range row.Lines {
		if m := l.median(); strings.HasPrefix(l.Who, "Pawl") && !math.IsNaN(m) {
			rows, ok = max(rows, int(math.Ceil(m))), true
		}
	}
	return rows, ok
}

// riverFaster returns the rows in which River is faster than Pawl's first line, and the number of
// rows in which both have a figure.
func (r Report) riverFaster() (faster []Row, all int) {
	for _, row := range r.Rows {
		river, found := row.marked(func(l Line) bool { return l.Base })
		pawl, foundToo := row.marked(func(l Line) bool { return strings.HasPrefix(l.Who, "Pawl") })
		own, theirs := pawl.median(), river.median()
		if !found || !foundToo || math.IsNaN(own) || math.IsNaN(theirs) {
			continue
		}
		all++
		if row.Less && theirs < own || !row.Less && theirs > own {
			faster = append(faster, row)
		}
	}
	return faster, all
}

// linked returns the names of rows as links to their headings on the page.
func linked(rows []Row) string {
	var names []string
	for _, row := range rows {
		names = append(names, fmt.Sprintf("[%s](#%s)", row.ID, anchor(row.Title)))
	}
	if len(names) == 0 {
		return ""
	}
	return " (" + strings.Join(names, ", ") + ")"
}

// anchor returns GitHub's anchor of a heading.
func anchor(title string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z':
			return r
		}
		return -1
	}, strings.ToLower(title))
}
