package cli

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/pawl-go/pawl/cmd/pawl/internal/demo"
)

// plainEvery is how often a display that is not a terminal prints a line.
const plainEvery = 2 * time.Second

// barWidth is the bar's, in characters.
const barWidth = 28

// A display shows a demo: one line that is redrawn on a terminal, a line now and then elsewhere.
type display struct {
	mu       sync.Mutex
	w        io.Writer
	terminal bool
	drawn    bool
	last     time.Time
}

func newDisplay(w io.Writer) *display {
	d := &display{w: w, last: time.Now()}
	if f, ok := w.(*os.File); ok {
		d.terminal = term.IsTerminal(int(f.Fd()))
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

// Progress draws where the run stands.
func (d *display) Progress(p demo.Progress) {
	d.mu.Lock()
	defer d.mu.Unlock()
	counters := fmt.Sprintf("%d/%d effects  %d deliveries  %d duplicates  %d retried  %d/%d kills", p.Effects, p.Orders,
		p.Deliveries, p.Duplicates, p.Retried, p.Kills, p.KillsWant)
	if p.LastKill != "" {
		counters += " (" + p.LastKill + ")"
	}
	if d.terminal {
		d.erase()
		fmt.Fprintf(d.w, "%s %s", bar(p.Effects, p.Orders), counters)
		d.drawn = true
		return
	}
	if time.Since(d.last) >= plainEvery {
		d.last = time.Now()
		fmt.Fprintf(d.w, "%5.1fs  %s\n", p.Elapsed.Seconds(), counters)
	}
}

// end leaves the terminal on a fresh line.
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
