// Package pictures draws the pictures of the documentation as SVG files of docs/images/drawings:
//
//	go test ./internal/testbed/pictures -update
//
// A picture is laid out by hand in pictures.go and has the one style of this file. The site puts
// the files into its pages, so they have no ids, and their rules apply to the class pic alone.
package pictures

import (
	"fmt"
	"html"
	"strconv"
	"strings"
)

// A Picture is a drawing of Wide times High units. Its page shows it at up to 1.2 px a unit.
type Picture struct {
	Name   string // of the file, without .svg
	Alt    string // what the picture says; pages have it as the text of the image
	High   int
	Domain string // of a state diagram: the domain of schema pawl that lists the states
	Boxes  []Box
	Lines  []Line
	Texts  []Text
	Omits  []Omission // of a state diagram
}

// Wide is the width of every picture: that of a phone.
const Wide = 360

// A Box is a rectangle with centred lines of text. Its class is one or two of dot, state, part,
// group, stall, pill, good, bad and aside.
type Box struct {
	X, Y, W, H  int
	Text, Class string
}

func (b Box) pill() bool { return strings.HasPrefix(b.Class, "pill") }

// A Line is an arrow, or a line without a head. Its path has horizontal and vertical parts.
type Line struct {
	Path  string // points, each x,y
	Class string // "", good, bad or plain: without a head
	// From and To are states of a state diagram, "" for none. By are functions of the API that make
	// the change. A text beside the line names one.
	From, To string
	By       []string
}

// A Text is a line of text. Parts in backquotes are names of the code.
type Text struct {
	X, Y   int
	Text   string
	Class  string // "", faint, good or bad
	Anchor string // "": start; middle or end
}

// An Omission is a change of a state that a picture leaves out. To is "" if the row is deleted.
type Omission struct{ From, To, Why string }

// Light and Dark are the colours of the classes of text and surfaces.
var (
	Light = map[string]string{"back": "#ffffff", "box": "#f6f8fa", "stall": "#eaeef2", "ink": "#1f2328", "faint": "#59636e", "edge": "#59636e", "good": "#1a7f37", "bad": "#cf222e"}
	Dark  = map[string]string{"back": "#0d1117", "box": "#161b22", "stall": "#262c36", "ink": "#e6edf3", "faint": "#9198a1", "edge": "#9198a1", "good": "#3fb950", "bad": "#ff7b72"}
)

const style = `<style>
.pic { %s }
@media (prefers-color-scheme: dark) { .pic { %s } }
.pic text { fill: var(--ink); font: 13px system-ui, sans-serif } .pic text .code { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; font-size: 12px }
.pic .faint { fill: var(--faint) } .pic text.good { fill: var(--good) } .pic text.bad { fill: var(--bad) } .pic .strong { font-weight: 600 }
.pic rect { fill: var(--box); stroke: var(--edge); stroke-width: 1.5 } .pic rect.back { fill: var(--back); stroke: none } .pic rect.stall { fill: var(--stall); stroke-dasharray: 3 3 }
.pic rect.dot { fill: var(--edge); stroke: none } .pic rect.aside { stroke-dasharray: 5 4 } .pic rect.group { fill: none; stroke-dasharray: 5 4 } .pic rect.good { stroke: var(--good) } .pic rect.bad { stroke: var(--bad) }
.pic path { fill: none; stroke: var(--edge); stroke-width: 1.5 } .pic path.good { stroke: var(--good) } .pic path.bad { stroke: var(--bad) }
.pic polygon { fill: var(--edge) } .pic polygon.good { fill: var(--good) } .pic polygon.bad { fill: var(--bad) }
</style>
`

// SVG returns the file of a picture.
func (p Picture) SVG() string {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" class="pic" viewBox="0 0 %d %d" width="%d" height="%d" role="img" aria-label="%s">`+"\n",
		Wide, p.High, Wide*6/5, p.High*6/5, html.EscapeString(p.Alt))
	fmt.Fprintf(&b, style, variables(Light), variables(Dark))
	fmt.Fprintf(&b, `<rect class="back" width="%d" height="%d" rx="6"/>`+"\n", Wide, p.High)
	for _, box := range p.Boxes {
		round := 6
		if box.pill() || box.Class == "dot" {
			round = box.H / 2
		}
		fmt.Fprintf(&b, `<rect class="%s" x="%d" y="%d" width="%d" height="%d" rx="%d"/>`+"\n", box.Class, box.X, box.Y, box.W, box.H, round)
	}
	for _, line := range p.Lines {
		line.draw(&b)
	}
	for _, text := range p.AllTexts() {
		text.draw(&b)
	}
	return b.String() + "</svg>\n"
}

func variables(colours map[string]string) string {
	var all []string
	for _, name := range []string{"back", "box", "stall", "ink", "faint", "edge", "good", "bad"} {
		all = append(all, "--"+name+": "+colours[name])
	}
	return strings.Join(all, "; ")
}

// AllTexts returns the texts of a picture and of its boxes.
func (p Picture) AllTexts() []Text {
	const leading = 16
	all := p.Texts
	for _, box := range p.Boxes {
		lines := strings.Split(box.Text, "\n")
		for i, line := range lines {
			if line == "" {
				continue
			}
			if i == 0 && !box.pill() {
				line = "*" + line
			}
			y := box.Y + box.H/2 + 5 - leading*(len(lines)-1)/2 + leading*i
			all = append(all, Text{X: box.X + box.W/2, Y: y, Text: line, Anchor: "middle"})
		}
	}
	return all
}

// Points returns the corners of a line.
func (l Line) Points() (points [][2]int) {
	for point := range strings.FieldsSeq(l.Path) {
		x, y, _ := strings.Cut(point, ",")
		left, errX := strconv.Atoi(x)
		top, errY := strconv.Atoi(y)
		if errX != nil || errY != nil {
			panic("no point: " + point)
		}
		points = append(points, [2]int{left, top})
	}
	return points
}

// draw draws a line up to the base of its head, and the head with its tip at the last point.
func (l Line) draw(b *strings.Builder) {
	const long, half = 8, 4
	points := l.Points()
	end, before := points[len(points)-1], points[len(points)-2]
	dx, dy := sign(end[0]-before[0]), sign(end[1]-before[1])
	tip := end
	if l.headed() {
		end = [2]int{end[0] - dx*long, end[1] - dy*long}
	}
	path := ""
	for _, point := range append(points[:len(points)-1:len(points)-1], end) {
		path += fmt.Sprintf(" %d,%d", point[0], point[1])
	}
	fmt.Fprintf(b, `<path class="%s" d="M%s"/>`+"\n", l.Class, path)
	if l.headed() {
		fmt.Fprintf(b, `<polygon class="%s" points="%d,%d %d,%d %d,%d"/>`+"\n", l.Class, tip[0], tip[1], end[0]+dy*half, end[1]+dx*half, end[0]-dy*half, end[1]-dx*half)
	}
}

func (l Line) headed() bool { return !strings.Contains(l.Class, "plain") }

func sign(n int) int { return max(-1, min(1, n)) }

// draw draws a text. One that begins with * is strong.
func (t Text) draw(b *strings.Builder) {
	text, strong := strings.CutPrefix(t.Text, "*")
	class := t.Class
	if strong {
		class = strings.TrimSpace(class + " strong")
	}
	anchor := t.Anchor
	if anchor == "" {
		anchor = "start"
	}
	fmt.Fprintf(b, `<text class="%s" text-anchor="%s" x="%d" y="%d">`, class, anchor, t.X, t.Y)
	for i, part := range strings.Split(text, "`") {
		if part == "" {
			continue
		}
		if part = html.EscapeString(part); i%2 == 1 {
			part = `<tspan class="code">` + part + `</tspan>`
		}
		b.WriteString(part)
	}
	b.WriteString("</text>\n")
}
