package pictures

import (
	"flag"
	"fmt"
	"html"
	"io/fs"
	"math"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

var update = flag.Bool("update", false, "write docs/images/drawings")

const (
	root   = "../../.."
	folder = "docs/images/drawings"
)

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(path.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The files are what the descriptions draw.
func TestFiles_AreDrawn(t *testing.T) {
	t.Parallel()
	var names []string
	for _, p := range All {
		names = append(names, p.Name+".svg")
		file := path.Join(folder, p.Name+".svg")
		if *update {
			if err := os.WriteFile(path.Join(root, file), []byte(p.SVG()), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if read(t, file) != p.SVG() {
			t.Errorf("%s is not up to date: run go test ./internal/testbed/pictures -update", file)
		}
	}
	entries, err := os.ReadDir(path.Join(root, folder))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !slices.Contains(names, e.Name()) {
			t.Errorf("%s/%s is no picture of pictures.go", folder, e.Name())
		}
	}
}

// Each picture is on a page, and the text of its image is what the picture says.
func TestPages_ShowEachPicture(t *testing.T) {
	t.Parallel()
	image := regexp.MustCompile(`!\[([^\]]*)\]\([^)]*images/drawings/([a-z-]+)\.svg\)`)
	shown := map[string]int{}
	err := fs.WalkDir(os.DirFS(root), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "node_modules" || name != "." && strings.HasPrefix(d.Name(), ".")):
			return fs.SkipDir
		case !strings.HasSuffix(name, ".md"):
			return nil
		}
		for _, m := range image.FindAllStringSubmatch(read(t, name), -1) {
			shown[m[2]]++
			if i := slices.IndexFunc(All, func(p Picture) bool { return p.Name == m[2] }); i < 0 || m[1] != All[i].Alt {
				t.Errorf("%s: the text of the image %s is not the Alt of pictures.go", name, m[2])
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range All {
		if shown[p.Name] == 0 {
			t.Errorf("no page shows %s: ![%s](%s/%[1]s.svg)", p.Name, p.Alt, folder)
		}
		if p.Alt == "" || html.UnescapeString(p.Alt) != p.Alt || strings.ContainsAny(p.Alt, "`*[]") {
			t.Errorf("%s: the text is empty or Markdown: %s", p.Name, p.Alt)
		}
	}
}

// A state diagram has the states of the schema. Its arrows lead from state to state, each beside
// the name of a function that makes the change. TestPictures_StatesChangeAsDrawn in
// internal/testbed/schematest plays the arrows.
func TestStates_AreThoseOfTheSchema(t *testing.T) {
	t.Parallel()
	for _, p := range All {
		if p.Domain == "" {
			continue
		}
		for _, fault := range stateFaults(p, read(t, "schema/tables/0001_init.up.sql"), functions(t)) {
			t.Errorf("%s: %s", p.Name, fault)
		}
	}
}

// functions returns the functions of the API.
func functions(t *testing.T) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^create or replace function pawl_v1\.([a-z]\w+)`).FindAllStringSubmatch(read(t, "schema/dist/pawl.sql"), -1) {
		all[m[1]] = true
	}
	return all
}

func stateFaults(p Picture, tables string, all map[string]bool) (faults []string) {
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	domain := regexp.MustCompile(`create domain pawl\.` + p.Domain + ` as [^;]*?in \(([^)]*)\)`).FindStringSubmatch(tables)
	if domain == nil {
		return []string{"no domain " + p.Domain}
	}
	drawn := map[string]Box{}
	for _, b := range p.Boxes {
		if first, _, _ := strings.Cut(b.Text, "\n"); strings.HasPrefix(first, "`") {
			drawn[strings.Trim(first, "`")] = b
		}
	}
	for _, m := range regexp.MustCompile(`'(\w+)'`).FindAllStringSubmatch(domain[1], -1) {
		if _, ok := drawn[m[1]]; !ok {
			fault("the state %s is not drawn", m[1])
		}
	}
	for state := range drawn {
		if !strings.Contains(domain[1], "'"+state+"'") {
			fault("the schema has no state %s", state)
		}
	}
	for _, l := range p.Lines {
		points := l.Points()
		for state, point := range map[string][2]int{l.From: points[0], l.To: points[len(points)-1]} {
			if b, ok := drawn[state]; state != "" && (!ok || !onBorder(b, point)) {
				fault("the arrow %s leads not to the border of %q", l.Path, state)
			}
		}
		for _, by := range l.By {
			if !all[by] {
				fault("the API has no function %s", by)
			}
		}
		if !slices.ContainsFunc(p.Texts, func(text Text) bool {
			return slices.ContainsFunc(l.By, func(by string) bool { return strings.Contains(text.Text, "`"+by+"`") }) && l.passes(area(text).grown(16))
		}) {
			fault("the arrow %s names no function of %v", l.Path, l.By)
		}
	}
	return faults
}

func onBorder(b Box, p [2]int) bool {
	x, y := p[0], p[1]
	inside := x >= b.X && x <= b.X+b.W && y >= b.Y && y <= b.Y+b.H
	return inside && (x == b.X || x == b.X+b.W || y == b.Y || y == b.Y+b.H)
}

// Text has the contrast of WCAG 2 AA on each surface, and lines that of graphics.
func TestColours_HaveContrast(t *testing.T) {
	t.Parallel()
	for name, colours := range map[string]map[string]string{"light": Light, "dark": Dark} {
		for _, surface := range []string{"back", "box"} {
			for colour, least := range map[string]float64{"ink": 4.5, "faint": 4.5, "good": 4.5, "bad": 4.5, "edge": 3} {
				if got := contrast(colours[colour], colours[surface]); got < least {
					t.Errorf("%s: %s on %s has a contrast of %.2f, want %v", name, colour, surface, got, least)
				}
			}
		}
	}
	if got := contrast("#767676", "#ffffff"); math.Abs(got-4.54) > 0.01 {
		t.Errorf("the known contrast of 4.54 is computed as %.2f", got)
	}
}

func contrast(a, b string) float64 {
	luminance := func(colour string) float64 {
		var channels [3]uint8
		if _, err := fmt.Sscanf(colour, "#%02x%02x%02x", &channels[0], &channels[1], &channels[2]); err != nil {
			panic(err)
		}
		sum := 0.0
		for i, weight := range []float64{0.2126, 0.7152, 0.0722} {
			c := float64(channels[i]) / 255
			if c <= 0.04045 {
				c /= 12.92
			} else {
				c = math.Pow((c+0.055)/1.055, 2.4)
			}
			sum += weight * c
		}
		return sum
	}
	x, y := luminance(a), luminance(b)
	return (max(x, y) + 0.05) / (min(x, y) + 0.05)
}

// Texts keep clear of each other, of lines and of the borders of boxes, also in a wide font.
func TestLayout(t *testing.T) {
	t.Parallel()
	for _, p := range All {
		for _, fault := range layoutFaults(p) {
			t.Errorf("%s: %s", p.Name, fault)
		}
	}
}

// The checks find planted faults.
func TestLayout_Planted(t *testing.T) {
	t.Parallel()
	box := Box{10, 10, 100, 30, "a box", "state"}
	for want, p := range map[string]Picture{
		"outside":           {High: 100, Texts: []Text{{X: 300, Y: 50, Text: "too long for the picture"}}},
		"leaves its box":    {High: 100, Boxes: []Box{{10, 10, 30, 30, "too long", "state"}}},
		"crosses the box":   {High: 100, Boxes: []Box{box}, Texts: []Text{{X: 90, Y: 40, Text: "across"}}},
		"crosses the line":  {High: 100, Texts: []Text{{X: 10, Y: 50, Text: "across"}}, Lines: []Line{{Path: "20,10 20,90"}}},
		"meets":             {High: 100, Texts: []Text{{X: 10, Y: 50, Text: "one"}, {X: 20, Y: 55, Text: "other"}}},
		"neither":           {High: 100, Lines: []Line{{Path: "20,10 30,90"}}},
		"ends at no border": {High: 100, Boxes: []Box{box}, Lines: []Line{{Path: "200,25 120,25"}}},
		"goes through":      {High: 100, Boxes: []Box{box}, Lines: []Line{{Path: "200,25 5,25", Class: "plain"}}},
		"13 boxes":          {High: 100, Boxes: make([]Box, 13)},
	} {
		if faults := strings.Join(layoutFaults(p), "\n"); !strings.Contains(faults, want) {
			t.Errorf("no %q in %q", want, faults)
		}
	}
}

// A rectangle in units of the picture.
type rectangle struct{ left, top, right, bottom int }

func (r rectangle) grown(by int) rectangle {
	return rectangle{r.left - by, r.top - by, r.right + by, r.bottom + by}
}

func (r rectangle) meets(o rectangle) bool {
	return r.left < o.right && o.left < r.right && r.top < o.bottom && o.top < r.bottom
}

func (r rectangle) within(o rectangle) bool {
	return r.left >= o.left && r.right <= o.right && r.top >= o.top && r.bottom <= o.bottom
}

// area estimates the area of a text by the widths of DejaVu Sans, the widest of the usual fonts.
func area(t Text) rectangle {
	text, strong := strings.CutPrefix(t.Text, "*")
	wide := 0.0
	for i, part := range strings.Split(text, "`") {
		for _, r := range part {
			em := 0.62
			switch {
			case i%2 == 1:
				em = 0.602 * 12 / 13
			case strings.ContainsRune("iljtf.,:;'-() ", r):
				em = 0.36
			case strings.ContainsRune("mwMW", r):
				em = 0.92
			case unicode.IsUpper(r):
				em = 0.7
			}
			if strong && i%2 == 0 {
				em *= 1.12
			}
			wide += 13 * em
		}
	}
	left := t.X
	switch w := int(math.Ceil(wide)); t.Anchor {
	case "middle":
		left -= w / 2
	case "end":
		left -= w
	}
	return rectangle{left, t.Y - 10, left + int(math.Ceil(wide)), t.Y + 3}
}

func (b Box) area() rectangle { return rectangle{b.X, b.Y, b.X + b.W, b.Y + b.H} }

// passes reports whether a line goes through a rectangle.
func (l Line) passes(r rectangle) bool {
	points := l.Points()
	for i, a := range points[1:] {
		b := points[i]
		if r.meets(rectangle{min(a[0], b[0]) - 1, min(a[1], b[1]) - 1, max(a[0], b[0]) + 1, max(a[1], b[1]) + 1}) {
			return true
		}
	}
	return false
}

func layoutFaults(p Picture) (faults []string) {
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	all := rectangle{0, 0, Wide, p.High}
	if boxes := len(p.Boxes); boxes > 12 {
		fault("%d boxes are too many", boxes)
	}
	texts := p.AllTexts()
	for i, text := range texts {
		a := area(text)
		if !a.within(all) {
			fault("%q is outside", text.Text)
		}
		for _, b := range p.Boxes {
			own := i >= len(p.Texts) && a.left+a.right-2*b.X-b.W < 2 && a.left+a.right-2*b.X-b.W > -2 && a.top > b.Y && a.bottom < b.Y+b.H
			switch {
			case own && !a.within(b.area().grown(-2)):
				fault("%q leaves its box", text.Text)
			case !own && a.meets(b.area()) && (!strings.Contains(b.Class, "group") || !a.within(b.area().grown(-2))):
				fault("%q crosses the box %q", text.Text, b.Text)
			}
		}
		for _, l := range p.Lines {
			if l.passes(a) {
				fault("%q crosses the line %s", text.Text, l.Path)
			}
		}
		for _, other := range texts[:i] {
			if a.meets(area(other)) {
				fault("%q meets %q", text.Text, other.Text)
			}
		}
	}
	solid := slices.DeleteFunc(slices.Clone(p.Boxes), func(b Box) bool { return strings.Contains(b.Class, "group") })
	for i, b := range solid {
		if !b.area().within(all) || slices.ContainsFunc(solid[:i], func(o Box) bool { return b.area().meets(o.area()) }) {
			fault("the box %q is outside or meets another", b.Text)
		}
	}
	for _, l := range p.Lines {
		points := l.Points()
		for i, a := range points[1:] {
			if b := points[i]; a[0] != b[0] && a[1] != b[1] {
				fault("the line %s is neither horizontal nor vertical", l.Path)
			}
		}
		end := points[len(points)-1]
		bordering := func(b Box) bool { return onBorder(b, end) }
		lifeline := func(o Line) bool { return !o.headed() && o.passes(rectangle{end[0], end[1], end[0], end[1]}.grown(1)) }
		if l.headed() && !slices.ContainsFunc(solid, bordering) && !slices.ContainsFunc(p.Lines, lifeline) {
			fault("the arrow %s ends at no border", l.Path)
		}
		for _, b := range solid {
			if l.passes(b.area().grown(-3)) {
				fault("the line %s goes through %q", l.Path, b.Text)
			}
		}
	}
	return faults
}
