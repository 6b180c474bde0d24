package main

import (
	"fmt"
	"html"
	"math"
	"slices"
	"strings"
)

// charted are the rows of the bar chart, in order, and chartedLines are the contenders that it
// shows. The tables have the others.
var (
	charted      = []string{"enqueue-1", "enqueue-16", "enqueue-many", "noop", "step", "effect-batch"}
	chartedLines = []string{"Pawl", "Pawl, batch", "River", "River, rows", "loop"}
)

// rateChart draws the rates of the charted rows, one group per row. The greatest rate of a row has
// the longest bar. It returns nil without such rows.
func rateChart(r Report) *drawing {
	const (
		wide, left, right = 720, 110, 130.0 // px: total, names, figures
		bar, gap, head    = 16.0, 5.0, 26.0
	)
	d := &drawing{name: "performance-rates.svg", title: "Rates of Pawl, River and a loop written by hand: longer is better, and each group has its own scale", wide: wide}
	y := 8.0
	var said []string
	for _, id := range charted {
		row, ok := r.row(id)
		lines := slices.DeleteFunc(slices.Clone(row.Lines), func(l Line) bool {
			return !slices.Contains(chartedLines, l.Who) || !(l.median() > 0)
		})
		if !ok || len(lines) == 0 {
			continue
		}
		most := 0.0
		for _, l := range lines {
			most = max(most, l.median())
		}
		d.text("head", "start", 10, y+head-10, row.Title)
		y += head
		var figures []string
		for _, l := range lines {
			long := math.Max(1, (wide-left-right)*l.median()/most)
			d.text("", "end", left-8, y+bar-4, l.Who)
			d.rect(barClass(l), left, y, long, bar)
			d.text("faint", "start", left+long+8, y+bar-4, number(l.median())+" "+row.Unit)
			figures = append(figures, l.Who+" "+number(l.median()))
			y += bar + gap
		}
		y += 10
		said = append(said, fmt.Sprintf("%s, %s: %s.", row.Title, row.Unit, strings.Join(figures, "; ")))
	}
	if len(said) == 0 {
		return nil
	}
	d.high, d.desc = int(y), strings.Join(said, " ")
	return d
}

func barClass(l Line) string {
	switch {
	case strings.HasPrefix(l.Who, "Pawl"):
		return "c0"
	case strings.HasPrefix(l.Who, "River"):
		return "c1"
	}
	return "c2"
}

// A drawing is a chart as an SVG file. The same figures give the same octets. It has no script and
// is readable on light and dark pages. Its title and desc describe it for screen readers.
type drawing struct {
	name     string // of the file
	title    string
	desc     string // all figures, for screen readers
	wide     int    // in px
	high     int
	elements strings.Builder
}

// style colours the classes. The background changes with the text, so a page whose theme differs
// from the system's is still readable.
const style = `<style>
.back { fill: #ffffff } text { fill: #1f2328; font: 13px system-ui, sans-serif } .head { font-weight: 600 } .faint { fill: #59636e }
.c0 { fill: #0969da } .c1 { fill: #8c959f } .c2 { fill: #bf8700 }
@media (prefers-color-scheme: dark) {
.back { fill: #0d1117 } text { fill: #e6edf3 } .faint { fill: #9198a1 } .c0 { fill: #58a6ff } .c1 { fill: #8b949e } .c2 { fill: #d29922 } }
</style>
`

func (d *drawing) rect(class string, x, y, wide, high float64) {
	fmt.Fprintf(&d.elements, `<rect class="%s" x="%.1f" y="%.1f" width="%.1f" height="%.1f"/>`+"\n", class, x, y, wide, high)
}

// text draws text at x, y. anchor is start, middle or end.
func (d *drawing) text(class, anchor string, x, y float64, text string) {
	fmt.Fprintf(&d.elements, `<text class="%s" text-anchor="%s" x="%.1f" y="%.1f">%s</text>`+"\n", class, anchor, x, y, html.EscapeString(text))
}

// svg returns the whole file.
func (d *drawing) svg() string {
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" aria-labelledby="title desc">
<title id="title">%s</title>
<desc id="desc">%s</desc>
%s<rect class="back" width="%d" height="%d"/>
%s</svg>
`, d.wide, d.high, d.wide, d.high, html.EscapeString(d.title), html.EscapeString(d.desc), style, d.wide, d.high, d.elements.String())
}
