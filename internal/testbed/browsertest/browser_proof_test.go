//go:build proof

package browsertest

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// chromium is the browser that all tests share. Each has its own profile in it.
var chromium context.Context

func startChromium(dir string) (stop func(), err error) {
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.UserDataDir(dir+"/profile"), chromedp.Flag("disable-dev-shm-usage", true))
	if os.Getuid() == 0 {
		options = append(options, chromedp.NoSandbox) // Chromium's sandbox does not work as root
	}
	allocator, cancel := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, cancelBrowser := chromedp.NewContext(allocator)
	stop = func() { cancelBrowser(); cancel() }
	if err := chromedp.Do(ctx, chromedp.Navigate("about:blank")); err != nil {
		stop()
		return nil, fmt.Errorf("chromium does not start: %w\ninstall it, for instance with: apt-get install chromium", err)
	}
	chromium = ctx
	return stop, nil
}

// A look is the size, the colour scheme and the device of a window.
type look struct {
	name          string
	width, height int64
	dark, phone   bool
}

var looks = []look{{"light", 1280, 900, false, false}, {"dark", 1280, 900, true, false}, {"phone", 390, 844, false, true}}

// A browser is one window and its errors.
type browser struct {
	*testing.T
	ctx  context.Context
	root string

	mu       sync.Mutex
	troubles []string
}

// limit bounds one action, also on a busy machine.
const limit = 2 * time.Minute

// open opens a window and logs in.
func open(t *testing.T, l look, login, root string) *browser {
	t.Helper()
	b := &browser{T: t, root: root}
	ctx, cancel := chromedp.NewContext(chromium, chromedp.WithNewBrowserContext(), chromedp.WithListener(b.hear))
	t.Cleanup(cancel)
	b.ctx = ctx
	b.dress(l)
	if login != "" {
		b.visit(login)
	}
	return b
}

// dress changes the look of the window.
func (b *browser) dress(l look) {
	b.Helper()
	scheme := "light"
	if l.dark {
		scheme = "dark"
	}
	media := emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"}}}
	// Without a timeout: the window lives as long as the context of its first call.
	if err := chromedp.Do(b.ctx,
		chromedp.EmulateViewport(l.width, l.height, func(p *emulation.SetDeviceMetricsOverrideParams, _ *emulation.SetTouchEmulationEnabledParams) {
			p.Mobile = l.phone
		}),
		chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
			_, err := cdp.Call(ctx, t, emulation.SetEmulatedMedia, media)
			return err
		})); err != nil {
		b.Fatal(err)
	}
}

// readable checks the page: axe finds nothing, it is not wider than the window, and it reports no
// error. With -screenshots it takes a picture.
func (b *browser) readable(name string, l look) {
	b.Helper()
	for _, text := range append(b.violations("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"), b.wide()...) {
		b.Errorf("%s, %s: %s", name, l.name, text)
	}
	b.quiet(name)
	if *screenshots != "" {
		b.picture(filepath.Join(*screenshots, name+"-"+l.name+".webp"))
	}
}

// violations returns what axe finds on the page with these rules or tags.
func (b *browser) violations(rules ...string) []string {
	b.Helper()
	b.do(chromedp.Evaluate[chromedp.Void](axe))
	return evaluate[[]string](b, fmt.Sprintf(`axe.run(document, {runOnly: %q.split(" ")}).then(r =>
		r.violations.map(v => v.id + ": " + v.help + ": " + v.nodes.slice(0, 3).map(n => n.html.slice(0, 200) + " " + (n.any[0] || {message: ""}).message).join("; ")))`, strings.Join(rules, " ")))
}

// wide returns by how much the page is wider than the window.
func (b *browser) wide() []string {
	b.Helper()
	if wide := evaluate[int](b, "document.documentElement.scrollWidth - document.documentElement.clientWidth"); wide > 0 {
		return []string{fmt.Sprintf("%d pixels wider than the window", wide)}
	}
	return nil
}

// hear records what a page must not cause: console errors, violations of the content security
// policy, dialogs, requests to other hosts.
func (b *browser) hear(event any) {
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		b.trouble("exception: " + e.ExceptionDetails.Text)
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.ConsoleAPICalledTypeError || e.Type == runtime.ConsoleAPICalledTypeWarning {
			text := "console:"
			for _, arg := range e.Args {
				text += fmt.Sprintf(" %s %s", arg.Value, arg.Description)
			}
			b.trouble(text)
		}
	case *cdplog.EventEntryAdded:
		// An expected refusal by our own page.
		refused := e.Entry.Source == cdplog.EntrySourceNetwork && strings.Contains(e.Entry.Text, "status of 4")
		if !refused && (e.Entry.Level == cdplog.EntryLevelError || e.Entry.Level == cdplog.EntryLevelWarning) {
			b.trouble("log: " + e.Entry.Text)
		}
	case *network.EventRequestWillBeSent:
		if from, to := host(b.root), host(e.Request.URL); to != "" && to != from {
			b.trouble("requests " + e.Request.URL)
		}
	case *page.EventJavascriptDialogOpening:
		b.trouble("dialog: " + e.Message)
		go func() {
			_ = chromedp.Do(b.ctx, chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
				_, err := cdp.Call(ctx, t, page.HandleJavaScriptDialog, page.HandleJavaScriptDialogParams{})
				return err
			}))
		}()
	}
}

func (b *browser) trouble(text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.troubles = append(b.troubles, text)
}

// host returns the host and port of a URL.
func host(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return address
	}
	return u.Host
}

// heard returns the errors since the last call.
func (b *browser) heard() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	troubles := b.troubles
	b.troubles = nil
	return troubles
}

// quiet requires that no error was recorded since the last call.
func (b *browser) quiet(where string) {
	b.Helper()
	for _, text := range b.heard() {
		b.Errorf("%s: %s", where, text)
	}
}

func (b *browser) do(actions ...chromedp.Action[chromedp.Void]) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, limit)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		b.Fatalf("%v\nthe page says:\n%s", err, b.said())
	}
}

// ask runs an action that returns a value.
func ask[T any](b *browser, action chromedp.Action[T]) T {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, limit)
	defer cancel()
	answer, err := chromedp.Run(ctx, action)
	if err != nil {
		b.Fatalf("%v\nthe page says:\n%s", err, b.said())
	}
	return answer
}

// evaluate runs a program in the page and returns its value, or the value of the promise that it
// returns.
func evaluate[T any](b *browser, program string) T {
	b.Helper()
	return ask(b, chromedp.Evaluate[T](program, chromedp.EvalAwaitPromise))
}

// visit opens an address, which is a page's relative link or a full URL.
func (b *browser) visit(address string) {
	b.Helper()
	if !strings.Contains(address, "://") {
		address = b.root + address
	}
	b.do(chromedp.Navigate(address))
}

// click follows the link or presses the button with this text, and waits for the next page.
func (b *browser) click(text string) {
	b.Helper()
	b.press(fmt.Sprintf(`(//a[normalize-space(.)=%[1]q] | //button[normalize-space(.)=%[1]q])[last()]`, text))
}

// follow follows the first link whose text contains this text.
func (b *browser) follow(text string) {
	b.Helper()
	b.press(fmt.Sprintf(`(//main//a[contains(normalize-space(.), %q)])[1]`, text))
}

func (b *browser) press(path string) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, limit)
	defer cancel()
	if _, err := chromedp.RunResponse(ctx, chromedp.Click(path)); err != nil {
		b.Fatalf("%s: %v\nthe page says:\n%s", path, err, b.said())
	}
}

// fill sets the field with this label.
func (b *browser) fill(label, value string) {
	b.Helper()
	field := fmt.Sprintf(`(//label[contains(normalize-space(.), %q)]//*[self::input or self::textarea or self::select])[1]`, label)
	if ask(b, chromedp.JavascriptAttribute[string](field, "tagName")) == "SELECT" {
		b.do(chromedp.SetValue(field, value))
		return
	}
	b.do(chromedp.SendKeys(field, value))
}

// search finds a key with the search field, which every page has.
func (b *browser) search(key string) {
	b.Helper()
	b.do(chromedp.SendKeys(chromedp.ID("q"), key))
	b.click("Find")
}

// address returns the browser's address.
func (b *browser) address() string {
	b.Helper()
	return ask(b, chromedp.Location())
}

// said returns the visible text of the page.
func (b *browser) said() string {
	ctx, cancel := context.WithTimeout(b.ctx, 20*time.Second)
	defer cancel()
	text, err := chromedp.Run(ctx, chromedp.Evaluate[string]("document.body.innerText"))
	if err != nil {
		return err.Error()
	}
	return text
}

// reads requires texts on the page.
func (b *browser) reads(patterns ...string) {
	b.Helper()
	text := b.said()
	for _, p := range patterns {
		if !regexp.MustCompile(p).MatchString(text) {
			b.Errorf("no %q on the page:\n%s", p, text)
		}
	}
}

// says waits until the page, which refreshes itself, contains a text.
func (b *browser) says(text string) {
	b.Helper()
	for deadline := time.Now().Add(limit); !strings.Contains(b.said(), text); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			b.Fatalf("no %q within %v:\n%s", text, limit, b.said())
		}
	}
}

// until reloads a page until it contains a text.
func (b *browser) until(address, pattern string) {
	b.Helper()
	for deadline := time.Now().Add(limit); ; time.Sleep(200 * time.Millisecond) {
		b.visit(address)
		text := b.said()
		if regexp.MustCompile(pattern).MatchString(text) {
			return
		}
		if time.Now().After(deadline) {
			b.Fatalf("no %q on %s within %v:\n%s", pattern, address, limit, text)
		}
	}
}
