package main

import (
	"fmt"
	"html"
	"strings"
)

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
.axis { stroke: #8c959f } .grid { stroke: #d1d9e0 } .c0 { fill: #0969da; stroke: #0969da } .c1 { fill: #8c959f; stroke: #8c959f }
.c2 { fill: #bf8700; stroke: #bf8700 } .c3 { fill: #1a7f37; stroke: #1a7f37 } .line { fill: none; stroke-width: 2 } .tail { stroke-dasharray: 5 4 }
@media (prefers-color-scheme: dark) {
.back { fill: #0d1117 } text { fill: #e6edf3 } .faint { fill: #9198a1 } .axis { stroke: #656c76 } .grid { stroke: #3d444d }
.c0 { fill: #58a6ff; stroke: #58a6ff } .c1 { fill: #8b949e; stroke: #8b949e } .c2 { fill: #d29922; stroke: #d29922 } .c3 { fill: #3fb950; stroke: #3fb950 }
.line { fill: none } }
</style>
`

// colours is the number of the classes c0, c1, ….
const colours = 4

func (d *drawing) rect(class string, x, y, wide, high float64) {
	fmt.Fprintf(&d.elements, `<rect class="%s" x="%.1f" y="%.1f" width="%.1f" height="%.1f"/>`+"\n", class, x, y, wide, high)
}

func (d *drawing) line(class string, x1, y1, x2, y2 float64) {
	fmt.Fprintf(&d.elements, `<line class="%s" x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f"/>`+"\n", class, x1, y1, x2, y2)
}

func (d *drawing) dot(class string, x, y float64) {
	fmt.Fprintf(&d.elements, `<circle class="%s" cx="%.1f" cy="%.1f" r="3.5"/>`+"\n", class, x, y)
}

// path draws straight lines between points.
func (d *drawing) path(class string, points [][2]float64) {
	var at []string
	for _, p := range points {
		at = append(at, fmt.Sprintf("%.1f,%.1f", p[0], p[1]))
	}
	fmt.Fprintf(&d.elements, `<polyline class="%s" points="%s"/>`+"\n", class, strings.Join(at, " "))
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

// markdown returns the image link for a page of docs.
func (d *drawing) markdown() string {
	title := strings.NewReplacer("[", "(", "]", ")").Replace(d.title)
	return fmt.Sprintf("![%s](images/%s)\n", title, d.name)
}
