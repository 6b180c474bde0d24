//go:build proof

package browsertest

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// labPresses is the number of pressed buttons.
const labPresses = 200

// After random button presses in the crash lab, Pawl has doubled and lost nothing, and INSERT first
// has done both.
func TestLab(t *testing.T) {
	cmd := exec.Command(binary, "demo", "--watch", "--listen", "127.0.0.1:0", "--json")
	p := start(t, cmd)
	login, root := p.addresses()
	b := open(t, looks[0], login, root)
	b.reads("Crash lab", "Worker 3", "INSERT first")
	random := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 0))
	buttons := evaluate[int](b, `document.querySelectorAll("form[action=press] button").length`)
	if buttons < 12 {
		t.Fatalf("only %d buttons", buttons)
	}
	pressed := map[string]int{}
	for range labPresses {
		n := random.IntN(buttons)
		path := fmt.Sprintf(`(//form[@action="press"]//button)[%d]`, n+1)
		what := ask(b, chromedp.Text(path))
		pressed[what]++
		b.do(chromedp.Click(path))
		time.Sleep(time.Duration(100+random.IntN(300)) * time.Millisecond)
		if what == "Stop or go on sending" { // a lab that sends nothing shows nothing
			b.do(chromedp.Click(path))
		}
	}
	t.Logf("pressed %v", pressed)
	b.do(chromedp.Click(`//button[normalize-space(.)="Deliver duplicates"]`))
	b.says("sent 2 times more")
	for _, l := range looks {
		b.dress(l)
		b.readable("lab", l)
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	type camp struct{ Effects, Doubled, Lost int }
	var report struct {
		Sent, Presses int
		Pawl          camp `json:"pawl"`
		Beside        []camp
	}
	if err := json.Unmarshal(p.rest(), &report); err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", report)
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v: %s", err, p.said.String())
	}
	if report.Pawl.Doubled+report.Pawl.Lost != 0 || report.Pawl.Effects != report.Sent || report.Sent < 200 {
		t.Errorf("with Pawl: %+v of %d orders", report.Pawl, report.Sent)
	}
	t.Logf("counted: crash lab: %d orders, %d buttons pressed; with Pawl %d doubled, %d lost; with INSERT first %v", report.Sent, report.Presses, report.Pawl.Doubled, report.Pawl.Lost, report.Beside)
	if len(report.Beside) != 1 || report.Beside[0].Doubled == 0 || report.Beside[0].Lost == 0 {
		t.Errorf("INSERT first: %+v, want some of both", report.Beside)
	}
}

// In the crash lab you choose a way, read what breaks it, and see the fences. A worker freezes
// until another one has its order. When it wakes, its late write is refused. The lease without a
// fence writes it, and doubles the order.
func TestLab_FencesAndWays(t *testing.T) {
	t.Parallel()
	p := start(t, exec.Command(binary, "demo", "--watch", "--listen", "127.0.0.1:0", "--json"))
	login, root := p.addresses()
	b := open(t, looks[0], login, root)
	beside := func(title string) {
		t.Helper()
		b.do(chromedp.SetValue(`//select[@name="way"]`, title), chromedp.Click(`//button[normalize-space(.)="Change"]`))
		b.shows("the row of "+title, fmt.Sprintf(`!!document.getElementById("camp-%s")`, title))
	}
	for _, way := range []struct{ name, says string }{
		{"select-then-act", "neither finds a mark"}, {"single-update", "says processing for ever"}, {"two-phase", "A reaper frees old claims"},
		{"setnx-before", "It deletes the key"}, {"setnx-after", "stands for Redis"}, {"lease", "The lease expires"},
	} {
		beside(way.name)
		b.says(way.says)
		if rows := evaluate[string](b, `[...document.querySelectorAll("#matrix tr[aria-current]")].map(r => r.querySelector("th").textContent).join()`); !b.has(rows) || rows == "" {
			t.Errorf("%s: the matrix marks %q", way.name, rows)
		}
	}
	late := func(camp, what string) string {
		return fmt.Sprintf(`[...document.querySelectorAll("#takeovers tbody tr")].some(r => r.cells[0].textContent === %q && r.cells[6].textContent === %q)`, camp, what)
	}
	both := late("Pawl", "refused") + " && " + late("Lease without a fence", "written") + ` && document.querySelector("#camp-lease [data-of=doubled]").textContent !== "0"`
	b.shows("the refused write beside the doubled order", both, func() {
		b.do(chromedp.Click(`//article[@id="worker-1"]//button[normalize-space(.)="Freeze"]`))
		time.Sleep(5 * time.Second) // past the lease
		b.do(chromedp.Click(`//article[@id="worker-1"]//button[normalize-space(.)="Wake"]`))
		time.Sleep(2 * time.Second)
	})
	fences := evaluate[[]string](b, `[...document.querySelectorAll("#takeovers tbody tr")].filter(r => r.cells[6].textContent === "refused").map(r => r.cells[3].textContent + " " + r.cells[5].textContent)`)
	for _, pair := range fences {
		var first, second int
		if _, err := fmt.Sscan(pair, &first, &second); err != nil || second <= first {
			t.Errorf("a write is refused although the fences are %q", pair)
		}
	}
	for _, l := range looks {
		b.dress(l)
		b.readable("lab-fences", l)
	}
}

// shows waits until a program in the page returns true. The page may load anew meanwhile, which
// ends the program with an error. Between two looks, shows calls again.
func (b *browser) shows(what, program string, again ...func()) {
	b.Helper()
	for deadline := time.Now().Add(limit); ; time.Sleep(100 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(b.ctx, limit)
		yes, err := chromedp.Run(ctx, chromedp.Evaluate[bool](program))
		cancel()
		if err == nil && yes {
			return
		}
		if time.Now().After(deadline) {
			b.Fatalf("the page does not show %s within %v (%v):\n%s", what, limit, err, b.said())
		}
		for _, do := range again {
			do()
		}
	}
}

// has reports whether the page contains a text.
func (b *browser) has(text string) bool { return strings.Contains(b.said(), text) }
