package main

import (
	"fmt"
	"math"
	"strings"
	"text/tabwriter"
)

// A verdict compares a line with one bar of its row.
type verdict struct {
	row      Row
	bar      Bar
	got      float64
	measured bool
}

// verdicts returns the verdicts on all bars of a report, in the order of its rows.
func verdicts(r Report) (all []verdict) {
	for _, row := range r.Rows {
		all = append(all, row.verdicts()...)
	}
	return all
}

func (r Row) verdicts() (all []verdict) {
	for _, b := range r.Bars {
		got, ok := r.reached(b)
		all = append(all, verdict{r, b, got, ok})
	}
	return all
}

func (v verdict) met() bool    { return v.measured && v.row.met(v.bar, v.got) }
func (v verdict) missed() bool { return v.measured && !v.met() }

func (v verdict) String() string {
	switch {
	case !v.measured:
		return "not measured"
	case v.met():
		return "met"
	}
	return "NOT met"
}

// reached returns the line's figure as text. A figure that misses its bar is rounded away from the
// bar, so it never reads as if it met it.
func (v verdict) reached() string {
	line, _ := v.row.line(v.bar.Who)
	switch {
	case !v.measured:
		return "–"
	case v.bar.Of != "":
		return fmt.Sprintf("%.2f×", v.away(v.got, 0.01))
	case !v.bar.P99 && line.Rounds[0].Clean > 0:
		return fmt.Sprintf("%.0f %%", v.away(100*v.got, 1))
	case v.got == 1 && v.row.Unit == "rows":
		return "1 row"
	case v.got < 10:
		return number(v.away(v.got, 0.01)) + " " + v.row.Unit
	case v.got < 100:
		return number(v.away(v.got, 0.1)) + " " + v.row.Unit
	}
	return number(v.away(v.got, 1)) + " " + v.row.Unit
}

// away rounds to a multiple of unit. For a missed bar it rounds up if less is better, else down.
func (v verdict) away(figure, unit float64) float64 {
	const slack = 1e-9 // keeps a multiple of unit despite its floating-point error
	switch {
	case !v.missed():
		return math.Round(figure/unit) * unit
	case v.row.Less:
		return math.Ceil(figure/unit-slack) * unit
	}
	return math.Floor(figure/unit+slack) * unit
}

// barsText lists all bars of a run and counts those met. It returns "" if no row has a bar.
func barsText(r Report) string {
	all := verdicts(r)
	if len(all) == 0 {
		return ""
	}
	var out strings.Builder
	out.WriteString("\nBars\n")
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	for _, v := range all {
		verdict := v.String()
		if _, ok := v.explanation(); ok {
			verdict += ", and the page says why"
		}
		fmt.Fprintf(w, "  %s\t%s\t%s\t%s\t%s\n", v.row.ID, v.bar.Who, v.bar, v.reached(), verdict)
	}
	_ = w.Flush()
	out.WriteString(metOf(all) + "\n")
	return out.String()
}

// metOf returns the counts as text: "14 of 17 bars met, 1 not measured".
func metOf(all []verdict) string {
	met, unmeasured := 0, 0
	for _, v := range all {
		switch {
		case v.met():
			met++
		case !v.measured:
			unmeasured++
		}
	}
	text := fmt.Sprintf("%d of %d bars met", met, len(all))
	if unmeasured > 0 {
		text += fmt.Sprintf(", %d not measured", unmeasured)
	}
	return text
}
