package dashboard

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pawl-go/pawl/ops"
)

// A picture draws a story: a row for each object, and a column for each moment, numbered as in the
// list. Columns are equally wide, since a millisecond and a week may follow each other.
type picture struct {
	Width, Height int
	Lanes         []pictureLane
	Columns       []pictureText
	Bars          []pictureLine
	Marks         []pictureMark
	Now           float64 // the line between past and future; 0 if all is past
	Left          int     // moments without room
}

type pictureLane struct {
	Name   string
	Y      float64
	X1, X2 float64 // from its first moment to its last
}

type pictureText struct {
	X    float64
	Text string
}

// A pictureLine is something with a duration: a call of a provider, or a running lease.
type pictureLine struct {
	X1, X2, Y float64
	Class     string
	Said      string
}

type pictureMark struct {
	Shape string // data of an SVG path
	Class string
	Said  string
}

func (picture) Kind() string { return "picture" }

const (
	pictureMargin = 190 // for the names of rows
	pictureStep   = 34
	pictureRow    = 34
	pictureTop    = 26
	mostLanes     = 16
	mostColumns   = 80
)

// pictureOf draws the moments that have a time. It returns nil if there are too few.
func (v *view) pictureOf(s ops.Story, t timeline) *picture {
	p := &picture{Width: pictureMargin, Height: pictureTop}
	lanes := map[string]int{}
	calls := map[string]pictureLine{} // by lane and fence
	n := 0
	for i, m := range t {
		if m.At.IsZero() {
			continue
		}
		x := float64(pictureMargin + pictureStep*n + pictureStep/2)
		if m.Class == "now" {
			p.Now, n = x, n+1
			continue
		}
		lane, known := lanes[m.Subject.Text]
		if n >= mostColumns || !known && len(lanes) >= mostLanes {
			p.Left++
			continue
		}
		if !known {
			lane = len(lanes)
			lanes[m.Subject.Text] = lane
			p.Lanes = append(p.Lanes, pictureLane{Name: m.Subject.Text, Y: float64(pictureTop + pictureRow*lane + pictureRow/2), X1: x})
		}
		y := p.Lanes[lane].Y
		p.Lanes[lane].X2 = x
		n++
		p.Columns = append(p.Columns, pictureText{x, fmt.Sprint(i + 1)})
		p.Marks = append(p.Marks, pictureMark{shapeOf(m.Class, x, y), m.Class, stamp(m.At) + ": " + m.Subject.Text + " " + m.Event})
		fence := m.detail("fence")
		name := m.Subject.Text + " " + fence
		switch began, isCall := calls[name]; {
		case m.Event == "called" || m.Event == "asked":
			calls[name] = pictureLine{X1: x, Y: y, Class: "call"}
		case isCall && began.X2 == 0:
			began.X2, began.Said = x, fmt.Sprintf("call %s of %s: %s", fence, m.Subject.Text, m.Event)
			calls[name] = began
			p.Bars = append(p.Bars, began)
		}
	}
	if n < 2 {
		return nil
	}
	p.addLeases(s, t, lanes, float64(pictureMargin+pictureStep*n))
	p.Width += pictureStep*n + pictureStep
	p.Height += pictureRow*len(p.Lanes) + 6
	return p
}

// addLeases draws the running leases, from now to the right end.
func (p *picture) addLeases(s ops.Story, t timeline, lanes map[string]int, end float64) {
	for _, m := range t {
		ends, err := time.Parse(time.RFC3339Nano, m.detail("lease_expires_at"))
		lane, known := lanes[m.Subject.Text]
		if err != nil || !known || m.Event != "processing" || !ends.After(s.ReadAt) {
			continue
		}
		i := slices.IndexFunc(p.Marks, func(k pictureMark) bool { return strings.HasSuffix(k.Said, m.Subject.Text+" processing") })
		if i < 0 {
			continue
		}
		p.Bars = append(p.Bars, pictureLine{X1: p.Columns[i].X, X2: end, Y: p.Lanes[lane].Y, Class: "lease", Said: "its lease runs for another " + span(ends.Sub(s.ReadAt))})
	}
}

// detail returns a member of the moment's details.
func (m moment) detail(name string) string {
	for _, d := range m.Details {
		if d.Name == name {
			return d.Value
		}
	}
	return ""
}

// shapeOf returns the shape of a class, so that colour is never the only sign.
func shapeOf(class string, x, y float64) string {
	const r = 6.0
	switch class {
	case "bad": // a cross
		return fmt.Sprintf("M%g,%gL%g,%gM%g,%gL%g,%g", x-r, y-r, x+r, y+r, x-r, y+r, x+r, y-r)
	case "odd": // a triangle
		return fmt.Sprintf("M%g,%gL%g,%gL%g,%gZ", x, y-r, x+r, y+r, x-r, y+r)
	case "hand": // a diamond
		return fmt.Sprintf("M%g,%gL%g,%gL%g,%gL%g,%gZ", x, y-r, x+r, y, x, y+r, x-r, y)
	}
	// A disc.
	return fmt.Sprintf("M%g,%gA%[3]g,%[3]g 0 1,0 %[4]g,%[2]gA%[3]g,%[3]g 0 1,0 %[1]g,%[2]gZ", x-r, y, r, x+r)
}

// Said is the text of the picture for screen readers.
func (p picture) Said() string {
	var names []string
	for _, l := range p.Lanes {
		names = append(names, l.Name)
	}
	return fmt.Sprintf("%d moments of %s. The list below says the same.", len(p.Marks), strings.Join(names, ", "))
}
