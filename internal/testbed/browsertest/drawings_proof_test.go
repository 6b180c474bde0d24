//go:build proof

package browsertest

import (
	"fmt"
	"io/fs"
	"path"
	"testing"
)

const drawings = "docs/images/drawings"

// Each drawing is readable by itself too, as GitHub shows it: in light and in dark.
func TestSite_Drawings(t *testing.T) {
	t.Parallel()
	b := openSite(t)
	files, err := fs.ReadDir(repository, drawings)
	if err != nil || len(files) < 8 {
		t.Fatalf("%d files: %v", len(files), err)
	}
	for _, file := range files {
		backs := map[string]bool{}
		for _, l := range looks[:2] {
			b.dress(l)
			b.visit(path.Join(drawings, file.Name()))
			if n := evaluate[int](b, `document.querySelectorAll("svg.pic").length`); n != 1 {
				t.Errorf("%s: %d drawings", file.Name(), n)
			}
			for _, fault := range b.drawingFaults() {
				t.Errorf("%s, %s: %s", file.Name(), l.name, fault)
			}
			backs[evaluate[string](b, `getComputedStyle(document.querySelector(".back")).fill`)] = true
		}
		if len(backs) != 2 {
			t.Errorf("%s: light and dark have the backgrounds %v", file.Name(), backs)
		}
	}
}

// smallest is the least size of a letter on a phone, in px.
const smallest = 10

// drawingFaults returns what is wrong with the drawings of the open page: texts that are pale or
// small, meet others, leave their box or the drawing, or are not text that can be selected.
func (b *browser) drawingFaults() []string {
	b.Helper()
	return evaluate[[]string](b, fmt.Sprintf(`(() => {
		const rgb = fill => fill.match(/\d+/g).map(Number);
		const light = fill => rgb(fill).map(c => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4).reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
		const contrast = (x, y) => (Math.max(x, y) + 0.05) / (Math.min(x, y) + 0.05);
		const area = (e, less = 0) => { const r = e.getBoundingClientRect(); return {left: r.left, right: r.right, top: r.top + less * r.height, bottom: r.bottom - less * r.height} };
		const within = (a, o) => a.left >= o.left && a.right <= o.right && a.top >= o.top && a.bottom <= o.bottom;
		const meet = (a, o) => a.left < o.right && o.left < a.right && a.top < o.bottom && o.top < a.bottom;
		return [...document.querySelectorAll("svg.pic")].flatMap(svg => {
			const faults = [], texts = [...svg.querySelectorAll("text")], boxes = [...svg.querySelectorAll("rect:not(.dot)")];
			if (!(svg.getAttribute("aria-label")?.length > 50)) faults.push("a drawing does not say what it shows");
			if (!svg.getBoundingClientRect().width) faults.push("a drawing is not drawn");
			texts.forEach((text, i) => {
				const name = text.textContent, a = area(text, 0.2), style = getComputedStyle(text);
				if (!within(a, area(svg))) faults.push(name + " leaves the drawing");
				if (style.userSelect === "none") faults.push(name + " cannot be selected");
				const size = Math.min(...[text, ...text.children].map(e => parseFloat(getComputedStyle(e).fontSize))) * svg.getBoundingClientRect().width / svg.viewBox.baseVal.width;
				if (size < %d) faults.push(name + " has a size of " + size.toFixed(1) + " px");
				const under = boxes.filter(b => meet(a, area(b)));
				for (const b of under) if (!within(a, area(b))) faults.push(name + " leaves its box");
				const surface = getComputedStyle(under.findLast(b => getComputedStyle(b).fill !== "none") ?? boxes[0]).fill;
				const got = contrast(light(style.fill), light(surface));
				if (got < 4.5) faults.push(name + " has a contrast of " + got.toFixed(2));
				for (const other of texts.slice(0, i)) if (meet(a, area(other, 0.2))) faults.push(name + " meets " + other.textContent);
			});
			return faults;
		});
	})()`, smallest))
}
