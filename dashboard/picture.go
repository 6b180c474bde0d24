package dashboard

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/pawl-go/pawl/ops"
)

// A picture draws a story: a row for each object, from left to right in time. Its X are percents of
// the width, so it is as wide as the page; its Y are pixels.
type picture struct {
	Height, Axis float64
	Many         bool // too many moments for a narrow window
	Times        []pictureTime
	Lanes        []pictureLane
	Bars         []pictureLine
	Marks        []pictureMark
	Now          float64 // the line between past and future; 0 if all is past
	Left         int     // moments without room
	Signs        []sign
}

// A pictureTime is the time of a moment, above the axis.
type pictureTime struct {
	X          float64
	Text, Date string
	Class      string // "dense" has room in a wide window only
	Side       string // "first" and "last" stand beside their moment
}

type pictureLane struct {
	Name   string
	Y      float64
	X1, X2 float64 // from its first moment to its last
}

// A pictureLine is something with a duration: a call of a provider, or a running lease.
type pictureLine struct {
	X1, X2, Y float64
	Class     string
	Said      string
}

type pictureMark struct {
	X, Y  float64
	Shape string // data of an SVG path around 0,0
	Class string
	Said  string
}

// A sign is a line of the legend.
type sign struct{ Class, Mark, Text string }

var signs = []sign{{"good", "●", "done"}, {"plain", "○", "seen"}, {"odd", "△", "retried or held"}, {"bad", "✕", "wrong"}, {"hand", "◆", "by hand"},
	{"now", "│", "now"}, {"call", "━", "call"}, {"lease", "┅", "lease"}, {"cut", "≈", "longer than drawn"}}

func (picture) Kind() string { return "picture" }

const (
	pictureTop  = 40.0 // the axis, below two lines of text
	pictureRow  = 46.0
	pictureFrom = 2.5 // percent
	pictureTo   = 96.0
	mostLanes   = 16
	mostMoments = 60 // of the newest
	manyMoments = 24
)

// pictureOf draws the moments that have a time. It returns nil if there are too few.
func (v *view) pictureOf(s ops.Story, t timeline) *picture {
	p := &picture{Axis: pictureTop}
	t = slices.DeleteFunc(slices.Clone(t), func(m moment) bool { return m.At.IsZero() })
	if p.Left = max(len(t)-mostMoments, 0); p.Left > 0 {
		t = t[p.Left:]
	}
	if len(t) < 2 {
		return nil
	}
	p.Many = len(t) > manyMoments
	at, cut := spread(t)
	lanes := map[string]int{}
	calls := map[string]pictureLine{} // by lane and fence
	used := map[string]bool{"cut": slices.Contains(cut, true)}
	for i, m := range t {
		if m.Class == "now" {
			p.Now, used["now"] = at[i], true
			continue
		}
		lane, known := lanes[m.Subject.Text]
		if !known && len(lanes) >= mostLanes {
			p.Left++
			continue
		}
		if !known {
			lane = len(lanes)
			lanes[m.Subject.Text] = lane
			p.Lanes = append(p.Lanes, pictureLane{Name: m.Subject.Text, Y: pictureTop + pictureRow*float64(lane) + 34, X1: at[i]})
		}
		y := p.Lanes[lane].Y
		p.Lanes[lane].X2 = at[i]
		p.Marks = append(p.Marks, pictureMark{at[i], y, shapes[m.Class], m.Class, stamp(m.At) + ": " + m.Subject.Text + " " + m.Event})
		used[m.Class] = true
		fence := m.detail("fence")
		name := m.Subject.Text + " " + fence
		began, isCall := calls[name]
		switch ends, err := time.Parse(time.RFC3339Nano, m.detail("lease_expires_at")); {
		case m.Event == "called" || m.Event == "asked":
			calls[name] = pictureLine{X1: at[i], Y: y, Class: "call"}
		case isCall && began.X2 == 0:
			began.X2, began.Said = at[i], fmt.Sprintf("call %s of %s: %s", fence, m.Subject.Text, m.Event)
			calls[name] = began
			p.Bars, used["call"] = append(p.Bars, began), true
		case err == nil && m.Event == "processing" && ends.After(s.ReadAt):
			p.Bars, used["lease"] = append(p.Bars, pictureLine{at[i], 100, y, "lease", "its lease runs for another " + span(ends.Sub(s.ReadAt))}), true
		}
	}
	p.Times = timesOf(t, at, cut)
	p.Height = pictureTop + pictureRow*float64(len(p.Lanes)) + 10
	for _, one := range signs {
		if used[one.Class] {
			p.Signs = append(p.Signs, one)
		}
	}
	return p
}

// spread returns the place of each moment, and which of them come after a gap that was cut short.
// Distances are proportional to time, but never so small that marks hide each other. A gap of more
// than four times all others together is cut to their sum, or a week would leave no room for the
// seconds before it.
func spread(t timeline) (at []float64, cut []bool) {
	gaps := make([]float64, len(t)-1) // in seconds
	total := 0.0
	for i := range gaps {
		gaps[i] = t[i+1].At.Sub(t[i].At).Seconds()
		total += gaps[i]
	}
	cut = make([]bool, len(t))
	longest := slices.Index(gaps, slices.Max(gaps))
	if others := total - gaps[longest]; others > 0 && gaps[longest] > 4*others {
		gaps[longest], cut[longest+1] = others, true
	}
	least := min(0.035, 0.6/float64(len(gaps)))
	widths := func(scale float64) (all []float64, sum float64) {
		for _, gap := range gaps {
			all = append(all, max(gap*scale, least))
			sum += all[len(all)-1]
		}
		return all, sum
	}
	low, high := 0.0, 1e9 // of the width, for each second
	for range 100 {
		if _, sum := widths((low + high) / 2); sum < 1 {
			low = (low + high) / 2
		} else {
			high = (low + high) / 2
		}
	}
	all, sum := widths(low)
	x := 0.0
	for _, width := range append([]float64{0}, all...) {
		x += width / sum
		at = append(at, math.Round(100*(pictureFrom+x*(pictureTo-pictureFrom)))/100)
	}
	return at, cut
}

// Distances of two times above the axis, in percent: in a window of any width, and in a wide one.
const sparse, dense = 29.0, 9.0

// timesOf writes times where there is room: the first, the last and now before all others.
func timesOf(t timeline, at []float64, cut []bool) (all []pictureTime) {
	last := len(t) - 1
	write := func(i int, class string, room float64) {
		if slices.ContainsFunc(all, func(one pictureTime) bool { return math.Abs(one.X-at[i]) < room }) {
			return
		}
		one := pictureTime{X: at[i], Text: t[i].At.UTC().Format("15:04:05"), Class: class}
		if day := t[i].At.UTC().Format("Jan 2"); i == 0 || day != t[0].At.UTC().Format("Jan 2") {
			one.Date = day
		}
		switch i {
		case 0:
			one.Side = "first"
		case last:
			one.Side = "last"
		}
		if t[i].Class == "now" {
			one.Text, one.Date = "now", ""
		}
		if cut[i] {
			one.Text = "≈ " + one.Text
		}
		all = append(all, one)
	}
	write(0, "", sparse)
	write(last, "", sparse)
	if now := slices.IndexFunc(t, func(m moment) bool { return m.Class == "now" }); now >= 0 {
		write(now, "", sparse)
		write(now, "dense", dense)
	}
	for _, room := range []float64{sparse, dense} {
		class := ""
		if room == dense {
			class = "dense"
		}
		for i := range t {
			write(i, class, room)
		}
	}
	return all
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

const disc = "M-6,0A6,6 0 1,0 6,0A6,6 0 1,0 -6,0Z"

// shapes has the shape of each class, so that colour is never the only sign.
var shapes = map[string]string{"good": disc, "plain": disc, "odd": "M0,-6L6,6L-6,6Z", "bad": "M-6,-6L6,6M-6,6L6,-6", "hand": "M0,-6L6,0L0,6L-6,0Z"}

// Said is the text of the picture for screen readers.
func (p picture) Said() string {
	var names []string
	for _, l := range p.Lanes {
		names = append(names, l.Name)
	}
	return fmt.Sprintf("%d moments of %s. The list below says the same.", len(p.Marks), strings.Join(names, ", "))
}
