package cli

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/pawl-go/pawl/cmd/pawl/internal/demo"
	"github.com/pawl-go/pawl/internal/text"
)

// lineEvery is the interval of lines if the output is not a terminal.
const lineEvery = 2 * time.Second

// barWidth is the width of the bar, in characters.
const barWidth = 16

// usualWidth is assumed if the terminal does not report its width.
const usualWidth = 80

// A display shows the progress of a demo: one redrawn line on a terminal, or a line at intervals
// elsewhere.
type display struct {
	mu       sync.Mutex
	w        io.Writer
	terminal *os.File // nil if the output is not a terminal
	drawn    bool
	last     time.Time
}

func newDisplay(w io.Writer) *display {
	d := &display{w: w, last: time.Now()}
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		d.terminal = f
	}
	return d
}

// Note prints a line above the progress.
func (d *display) Note(line string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.erase()
	fmt.Fprintln(d.w, line)
}

// Progress draws the state of the run.
func (d *display) Progress(p demo.Progress) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.terminal != nil {
		// read each time, because windows are resized
		width, _, err := term.GetSize(int(d.terminal.Fd()))
		if err != nil || width <= 0 {
			width = usualWidth
		}
		d.erase()
		fmt.Fprint(d.w, fit(append([]string{bar(p.Effects, p.Orders)}, counters(p)...), width-1))
		d.drawn = true
		return
	}
	if time.Since(d.last) >= lineEvery {
		d.last = time.Now()
		fmt.Fprintf(d.w, "%5.1fs  %s\n", p.Elapsed.Seconds(), strings.Join(counters(p), "  "))
	}
}

// counters are the parts of a line, the most important first.
func counters(p demo.Progress) []string {
	parts := []string{
		fmt.Sprintf("%d/%d effects", p.Effects, p.Orders),
		text.Plural(p.Duplicates, "duplicate", "duplicates"),
		fmt.Sprintf("%d/%d kills", p.Kills, p.KillsWant),
		text.Plural(p.Deliveries, "delivery", "deliveries"),
		fmt.Sprintf("%d retried", p.Retried),
	}
	if p.LastKill != "" {
		parts = append(parts, "last kill: "+p.LastKill)
	}
	return parts
}

// fit joins as many parts as fit into one line of the terminal. A wrapped line could not be erased.
func fit(parts []string, width int) string {
	line := ""
	for _, part := range parts {
		longer := strings.TrimPrefix(line+"  "+part, "  ")
		if utf8.RuneCountInString(longer) > width {
			break
		}
		line = longer
	}
	return line
}

func (d *display) end() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.erase()
}

func (d *display) erase() {
	if d.drawn {
		fmt.Fprint(d.w, "\r\x1b[K")
		d.drawn = false
	}
}

func bar(done, all int) string {
	filled := barWidth
	if all > 0 {
		filled = min(barWidth*done/all, barWidth)
	}
	return "[" + strings.Repeat("█", filled) + strings.Repeat("░", barWidth-filled) + "]"
}
