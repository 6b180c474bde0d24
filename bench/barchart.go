package main

import (
	"fmt"
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
