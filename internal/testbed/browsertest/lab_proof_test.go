//go:build proof

package browsertest

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// labPresses is the number of pressed buttons.
const labPresses = 200

// After random button presses in the crash lab, Pawl has doubled and lost nothing, and the
// handwritten table has done both.
func TestLab(t *testing.T) {
	cmd := exec.Command(binary, "demo", "--watch", "--listen", "127.0.0.1:0", "--json")
	p := start(t, cmd)
	login, root := p.addresses()
	b := open(t, looks[0], login, root)
	b.reads("Crash lab", "Worker 3", "by hand")
	random := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 0))
	buttons := evaluate[int](b, `document.querySelectorAll("form button").length`)
	if buttons < 12 {
		t.Fatalf("only %d buttons", buttons)
	}
	pressed := map[string]int{}
	for range labPresses {
		n := random.IntN(buttons)
		path := fmt.Sprintf(`(//form//button)[%d]`, n+1)
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
		ByHand        camp `json:"by_hand"`
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
	if report.ByHand.Doubled == 0 || report.ByHand.Lost == 0 {
		t.Errorf("by hand: %+v, want some of both", report.ByHand)
	}
}
