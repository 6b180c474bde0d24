//go:build proof

package browsertest

import (
	"context"
	_ "embed"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"github.com/pawl-go/pawl/pawltest"
)

//go:embed testdata/shop.sql
var shop string

// screenshots is the directory for the documentation's pictures.
var screenshots = flag.String("screenshots", "", "write a picture of every page, in every look, to this directory")

// A place is a page and the text that it must contain for the shop's database.
type place struct{ name, title, address, says string }

var places = []place{
	{"overview", "Overview", "", `12,4\d\d|10,000\+`},
	{"queues", "Queues", "queues", `reports`},
	{"queue", "A queue", "queue?name=orders", `Effects and duplicates`},
	{"jobs", "Jobs", "jobs?queue=orders", `account 7|charge`},
	{"job", "A job", "job?id=1", `violates check constraint`},
	{"dead-letters", "Dead letters", "dead-letters", `(?s)died of.*smtp: connection refused`},
	{"lanes", "Lanes", "lanes", `account 7`},
	{"lane", "A lane that is blocked", "lane?queue=orders&name=account+7", `waits for a decision`},
	{"consumers", "Consumers", "consumers", `payments`},
	{"consumer", "A consumer", "consumer?name=payments", `evt_300`},
	{"delivery", "A delivery", "delivery?consumer=payments&key=evt_300", `a copy is a duplicate`},
	{"gates", "Sequence gates", "gates", `account 31`},
	{"gate", "A sequence gate", "gate?consumer=payments&resource=account+31", `19`},
	{"commands", "Commands", "commands", `f3c1-9d`},
	{"command", "A command", "command?scope=POST+%2Fcharges&key=f3c1-9d", `unknown`},
	{"steps", "Steps", "steps", `pawl-9f31`},
	{"step", "A step of unknown outcome", "step?scope=job%2Fpay&key=990%401&step=pay", `ask the provider about the key`},
	{"outbox", "Outbox", "outbox", `main`},
	{"schedules", "Schedules", "schedules", `nightly report`},
	{"schedule", "A schedule", "schedule?name=reconcile", `reconcile`},
	{"workers", "Workers", "workers", `mail-2b40`},
	{"doctor", "Doctor", "doctor", `(?s)Stands still.*repair the cause`},
	{"audit", "Audit", "audit", `the customer asks`},
	{"story", "A story", "story?key=order-1017", `lease_ended`},
	{"retry", "Before an action", "do/job_retry?id=1&fence=3", `may happen a second time`},
	{"retry-all", "Before a bulk action", "all/retry?queue=mail", `are selected now`},
	{"refused", "A page that says no", "job?id=banana", `must be`},
}

// Every page is accessible: axe finds nothing in light, dark and phone. No page reports an error or
// is wider than the window.
func TestPages(t *testing.T) {
	database := pawltest.URL(t, shop)
	for _, l := range looks {
		t.Run(l.name, func(t *testing.T) {
			login, root := serve(t, database)
			b := open(t, l, login, root)
			for _, p := range places {
				b.visit(p.address)
				b.reads(p.says)
				b.readable(p.name, l)
			}
		})
	}
}

// tall bounds the height of a picture in pixels.
const tall = 1800

// picture takes a picture of the page, without the name of the test's database.
func (b *browser) picture(file string) {
	b.Helper()
	b.do(chromedp.Evaluate[chromedp.Void](`for (const name of document.querySelectorAll(".brand span")) name.textContent = "shop"`))
	image := ask(b, func(ctx context.Context, t *chromedp.Target) ([]byte, error) {
		size, err := cdp.Call(ctx, t, page.GetLayoutMetrics, cdp.Empty{})
		if err != nil {
			return nil, err
		}
		quality, beyond := int64(70), true
		shot, err := cdp.Call(ctx, t, page.CaptureScreenshot, page.CaptureScreenshotParams{Format: page.CaptureScreenshotFormatWebp, Quality: &quality, CaptureBeyondViewport: &beyond,
			Clip: &page.Viewport{Width: size.CSSContentSize.Width, Height: min(size.CSSContentSize.Height, tall), Scale: 1}})
		return shot.Data, err
	})
	if err := os.WriteFile(file, image, 0o644); err != nil {
		b.Fatal(err)
	}
}

// The gallery in the documentation has every page in every look, and the pictures exist.
func TestGallery(t *testing.T) {
	t.Parallel()
	const file = "../../../docs/guides/dashboard-pages.md"
	if os.Getenv("PAWL_WRITE") != "" {
		if err := os.WriteFile(file, []byte(gallery()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	written, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(written) != gallery() {
		t.Errorf("%s is stale: run PAWL_WRITE=1 go test -tags proof -run TestGallery ./internal/testbed/browsertest", file)
	}
	for _, p := range append(places[:len(places):len(places)], place{name: "lab"}, place{name: "lab-fences"}) {
		for _, l := range looks {
			if _, err := os.Stat(fmt.Sprintf("../../../docs/images/dashboard/%s-%s.webp", p.name, l.name)); err != nil {
				t.Errorf("%v: run go test -tags proof ./internal/testbed/browsertest -args -screenshots $PWD/docs/images/dashboard", err)
			}
		}
	}
}

func gallery() string {
	var out strings.Builder
	out.WriteString(`# The dashboard's pages

Pictures of every page, with the data of a small shop: in light and dark, and on a phone. The browser tests take them
(` + "`internal/testbed/browsertest`" + `), from the real pages. [Dashboard](dashboard.md) says what each page is for.
`)
	for _, p := range places {
		fmt.Fprintf(&out, "\n## %s\n\n| light | dark | phone |\n|---|---|---|\n|", p.title)
		for _, l := range looks {
			fmt.Fprintf(&out, " <img src=\"../images/dashboard/%s-%s.webp\" alt=\"%s, %s\" width=\"%d\"> |", p.name, l.name, p.title, l.name, map[bool]int{false: 400, true: 160}[l.phone])
		}
		out.WriteString("\n")
	}
	return out.String()
}

// The keyboard reaches everything. The first stop skips the menu, and each stop is visible.
func TestPages_Keyboard(t *testing.T) {
	t.Parallel()
	login, root := serve(t, pawltest.URL(t, shop))
	b := open(t, looks[0], login, root)
	b.visit("lane?queue=orders&name=account+7")
	var stops []string
	for range 60 {
		b.do(chromedp.KeyEvent("\t"))
		stop := evaluate[string](b, `(() => {
			const e = document.activeElement;
			if (e === document.body) return "";
			const s = getComputedStyle(e);
			return (e.textContent.trim() || e.name || e.tagName) + "|" + (e.matches(":focus-visible") && s.outlineStyle !== "none" && parseFloat(s.outlineWidth) >= 2);
		})()`)
		if stop == "" {
			break
		}
		if text, seen, _ := strings.Cut(stop, "|"); seen != "true" {
			t.Errorf("%q cannot be seen when it has the focus", text)
		}
		stops = append(stops, stop)
	}
	if len(stops) == 0 || !strings.HasPrefix(stops[0], "Skip to the content") || !strings.Contains(strings.Join(stops, " "), "Go on without it") {
		t.Errorf("the stops are %q", stops)
	}
	b.quiet("with the keyboard")
}

// A page that refreshes itself shows new rows, keeps its scroll position, and stops when switched
// off.
func TestPages_RefreshThemselves(t *testing.T) {
	t.Parallel()
	url := pawltest.URL(t, shop)
	login, root := serve(t, url)
	b := open(t, looks[0], login, root)
	b.visit("workers")
	b.do(chromedp.Click(chromedp.ID("live")))
	pool := connect(t, url)
	if _, err := pool.Exec(t.Context(), "insert into pawl.worker (name) values ('a new one')"); err != nil {
		t.Fatal(err)
	}
	b.says("a new one")
	b.do(chromedp.Click(chromedp.ID("live")))
	if _, err := pool.Exec(t.Context(), "insert into pawl.worker (name) values ('too late')"); err != nil {
		t.Fatal(err)
	}
	time.Sleep(7 * time.Second)
	if strings.Contains(b.said(), "too late") {
		t.Error("it refreshed itself after it was told not to")
	}
	b.quiet("a page that refreshes itself")
}
