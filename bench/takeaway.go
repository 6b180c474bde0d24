package main

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// takeaway returns the summary, three sentences that follow from the figures. It omits what the run
// has not measured.
func takeaway(r Report) string {
	return strings.Join(slices.DeleteFunc([]string{speed(r), patience(r), price(r)}, func(s string) bool { return s == "" }), " ")
}

// speed returns the sentence about rates of jobs.
func speed(r Report) string {
	var parts []string
	for _, c := range []struct{ row, who, text string }{
		{"noop", "Pawl", "%s as many jobs a second as River if they do nothing"},
		{"step", "Pawl", "%s as many if each writes a row in the transaction that ends it"},
		{"effect-batch", "Pawl, batch", "%s as many if each writes a row, in batches of 100"},
	} {
		if f, ok := r.fold(c.row, c.who, "River"); ok {
			parts = append(parts, fmt.Sprintf(c.text, f))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return "Pawl works off " + enumerated(parts) + "."
}

// patience returns the sentence about how long a job waits, also if its worker dies or freezes.
func patience(r Report) string {
	var parts []string
	if own, _, ok := r.times("pickup", "Pawl"); ok {
		text := "an idle worker starts a job " + own + " after it was enqueued"
		if theirs, _, ok := r.times("pickup", "River"); ok {
			text += " (River: " + theirs + ")"
		}
		parts = append(parts, text)
	}
	if _, tail, ok := r.times("crash", "Pawl"); ok {
		parts = append(parts, "another one within "+tail+" of a SIGKILL")
	}
	if rows, ok := r.zombieRows(); ok {
		parts = append(parts, "one that was frozen past its lease leaves "+counted(rows, "row")+" of a job")
	}
	return capital(enumerated(parts))
}

// price returns the sentence about what is slower than with alternatives.
func price(r Report) string {
	var parts []string
	if f, ok := r.fold("command-fresh", "Pawl", "by hand"); ok {
		parts = append(parts, "a command under an idempotency key runs at "+f+" the rate of a table written by hand")
	}
	if f, ok := r.fold("noop", "loop", "Pawl"); ok && !strings.HasPrefix(f, "0.") {
		parts = append(parts, "a loop without leases and retries works off "+f+" as many jobs")
	}
	if faster, all := r.riverFaster(); all > 0 {
		parts = append(parts, fmt.Sprintf("River is ahead in %d of %s%s", len(faster), counted(all, "shared row"), linked(faster)))
	}
	return capital(enumerated(parts))
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

func enumerated(parts []string) string {
	if n := len(parts); n > 1 {
		return strings.Join(parts[:n-1], ", ") + ", and " + parts[n-1]
	}
	return strings.Join(parts, "")
}

// capital makes a text a sentence. The text may be empty.
func capital(text string) string {
	if text == "" {
		return ""
	}
	return strings.ToUpper(text[:1]) + text[1:] + "."
}
