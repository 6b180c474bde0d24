package main

import (
	"fmt"
	"math"
	"strings"
)

// A series contains one contender's lines at the sizes of a row.
type series struct {
	name  string
	lines []Line
}

// seriesOf groups a row's lines by contender, which is the name up to its first comma. It skips
// lines without a figure.
func seriesOf(row Row) (all []series) {
	at := map[string]int{}
	for _, l := range row.Lines {
		if math.IsNaN(l.median()) {
			continue
		}
		name, _, _ := strings.Cut(l.Who, ",")
		n, ok := at[name]
		if !ok {
			n = len(all)
			at[name] = n
			all = append(all, series{name: name})
		}
		all[n].lines = append(all[n].lines, l)
	}
	return all
}

// A plot is the area of a chart, in px, and its scales.
type plot struct {
	left, top, right, bottom float64
	logarithmic              bool
	least, greatest, most    float64 // of x, without zero if logarithmic; of y
	zero                     bool    // x has a zero, which a logarithmic scale puts at the left
}

// logarithmicFrom is the ratio of the greatest x to the least from which the scale is logarithmic.
// A linear scale would crowd the small ones.
const logarithmicFrom = 10

func plotOf(row Row) plot {
	p := plot{left: 80, top: 46, right: 690, bottom: 250, least: math.Inf(1)}
	for _, l := range row.Lines {
		if l.X > 0 {
			p.least = min(p.least, l.X)
		} else {
			p.zero = true
		}
		p.greatest = max(p.greatest, l.X)
		_, greatest := spread(l.values(func(r Round) float64 { return max(r.Value, r.P99) }))
		if !math.IsNaN(greatest) {
			p.most = max(p.most, greatest)
		}
	}
	p.logarithmic = p.greatest/p.least >= logarithmicFrom
	if !p.logarithmic && p.zero {
		p.least = 0
	}
	p.most = roundUp(p.most)
	return p
}

// x returns the position of a size. A margin keeps points off the edges.
func (p plot) x(size float64) float64 {
	const margin, gap = 30, 0.2
	part := 0.5
	switch {
	case p.logarithmic && size <= 0:
		part = 0
	case p.logarithmic:
		part = math.Log(size/p.least) / math.Log(p.greatest/p.least)
		if p.zero {
			part = gap + (1-gap)*part
		}
	case p.greatest > p.least:
		part = (size - p.least) / (p.greatest - p.least)
	}
	return p.left + margin + part*(p.right-p.left-2*margin)
}

func (p plot) y(figure float64) float64 { return p.bottom - figure/p.most*(p.bottom-p.top) }

// roundUp returns the least round number that is at least v. A quarter of it is also easy to read.
func roundUp(v float64) float64 {
	if !(v > 0) {
		return 1
	}
	power := math.Pow(10, math.Floor(math.Log10(v)))
	for _, n := range []float64{1, 1.2, 1.6, 2, 2.4, 3.2, 4, 5, 6, 8} {
		if n*power >= v {
			return n * power
		}
	}
	return 10 * power
}

// sizeChart draws a row that was measured at several sizes: medians as lines with extremes, and the
// p99 dashed. It returns nil for a row with fewer than two sizes.
// fewer than two sizes.
func sizeChart(row Row) *drawing {
	all := seriesOf(row)
	p := plotOf(row)
	if row.XLabel == "" || len(all) == 0 || p.greatest == 0 || p.greatest == p.least && !p.zero {
		return nil
	}
	d := &drawing{name: row.ID + ".svg", title: row.Title + ": " + row.Unit + " by " + row.XLabel, wide: 720, high: 310}
	d.text("head", "start", 10, 20, row.Title)
	p.axes(d, row)
	var said []string
	key := p.left
	for n, s := range all {
		class := fmt.Sprintf("c%d", n%colours)
		said = append(said, p.draw(d, row, s, class))
		names := []string{s.name}
		if row.hasP99() {
			names = []string{s.name + ", median", s.name + ", p99"}
		}
		for i, name := range names {
			stroke := class + " line"
			if i == 1 {
				stroke += " tail"
			}
			d.line(stroke, key, 302, key+24, 302)
			d.text("", "start", key+30, 306, name)
			key += 60 + 7.5*float64(len(name))
		}
	}
	d.desc = strings.Join(said, " ")
	return d
}

func (p plot) axes(d *drawing, row Row) {
	const parts = 4
	d.text("faint", "start", 10, p.top-10, row.Unit)
	for n := range parts + 1 {
		figure := p.most * float64(n) / parts
		d.line("grid", p.left, p.y(figure), p.right, p.y(figure))
		d.text("faint", "end", p.left-8, p.y(figure)+4, number(figure))
	}
	d.line("axis", p.left, p.bottom, p.right, p.bottom)
	shown := map[float64]bool{}
	for _, l := range row.Lines {
		if !shown[l.X] {
			d.line("axis", p.x(l.X), p.bottom, p.x(l.X), p.bottom+5)
			d.text("faint", "middle", p.x(l.X), p.bottom+20, number(l.X))
		}
		shown[l.X] = true
	}
	label := row.XLabel
	if p.logarithmic {
		label += " (logarithmic)"
	}
	d.text("faint", "middle", (p.left+p.right)/2, p.bottom+38, label)
}

// draw draws one contender's lines and returns their figures as text.
func (p plot) draw(d *drawing, row Row, s series, class string) string {
	var middles, tails [][2]float64
	var figures []string
	for _, l := range s.lines {
		x, v := p.x(l.X), l.median()
		figure := fmt.Sprintf("%s at %s", number(v), number(l.X))
		least, greatest := spread(l.values(func(r Round) float64 { return r.Value }))
		d.line(class, x, p.y(least), x, p.y(greatest))
		d.dot(class, x, p.y(v))
		middles = append(middles, [2]float64{x, p.y(v)})
		if row.hasP99() {
			p99 := median(l.values(func(r Round) float64 { return r.P99 }))
			d.dot(class, x, p.y(p99))
			tails = append(tails, [2]float64{x, p.y(p99)})
			figure += " with p99 " + number(p99)
		}
		figures = append(figures, figure)
	}
	d.path(class+" line", middles)
	if len(tails) > 0 {
		d.path(class+" line tail", tails)
	}
	return fmt.Sprintf("%s, %s: %s %s.", s.name, row.Unit, strings.Join(figures, "; "), row.XLabel)
}
