//go:build proof

package browsertest

import (
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/pawl-go/pawl/internal/testbed/patience"
)

// site is the directory that make site builds, of the version without a tag.
const site, unreleased = "../../../site/dist", "unreleased"

var (
	narrow     = look{"narrow", 360, 740, false, true}
	repository = os.DirFS("../../..")
	// inRepository matches the address of a file or folder that is no page.
	inRepository = regexp.MustCompile(`^https://github\.com/pawl-go/pawl/(blob|tree)/HEAD/([^#]*)`)
)

// openSite serves the site, with a second version in its list, and opens a window.
func openSite(t *testing.T) *browser {
	t.Helper()
	if _, err := os.Stat(path.Join(site, unreleased, "index.html")); err != nil {
		t.Fatalf("%v: run make site VERSION=%s", err, unreleased)
	}
	files := http.FileServer(http.Dir(site))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/versions.json" {
			fmt.Fprintf(w, `["v9.9.9", %q]`, unreleased)
			return
		}
		files.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return open(t, looks[0], "", server.URL+"/"+unreleased+"/")
}

// sitePages returns the Markdown files that are pages by the addresses of their pages.
func sitePages(t *testing.T) map[string]string {
	t.Helper()
	pages := map[string]string{}
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/*.md", "docs/*/*/*.md"} {
		files, err := fs.Glob(repository, pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: no files: %v", pattern, err)
		}
		for _, file := range files {
			pages[strings.TrimSuffix(file, ".md")+".html"] = file
		}
	}
	pages["./"] = pages["README.html"]
	delete(pages, "README.html")
	return pages
}

// Every Markdown file is a page without faults, in light, dark and at 360 pixels, and another page
// leads to it.
func TestSite(t *testing.T) {
	pages, linked := sitePages(t), map[string]bool{}
	b := openSite(t)
	for page, file := range pages {
		b.showPage(page)
		links, faults := b.siteFaults()
		for _, fault := range faults {
			t.Errorf("%s: %s", file, fault)
		}
		for _, to := range links {
			linked[to] = linked[to] || to != page
		}
		text, err := fs.ReadFile(repository, file)
		if err != nil {
			t.Fatal(err)
		}
		if written, drawn := strings.Count(string(text), "images/drawings/"), evaluate[int](b, `document.querySelectorAll("svg.pic").length`); written != drawn {
			t.Errorf("%s: %d of %d drawings are on the page", file, drawn, written)
		}
	}
	for page, file := range pages {
		if !linked[page] {
			t.Errorf("%s: no page links to it", file)
		}
	}
}

// Each check of siteFaults finds its defect.
func TestSite_Planted(t *testing.T) {
	b := openSite(t)
	b.showPage("docs/guides/service.html")
	b.do(chromedp.Evaluate[chromedp.Void](`{
		const main = document.querySelector(".sl-markdown-content"), all = s => document.querySelectorAll(s);
		main.insertAdjacentHTML("beforeend", '<a href="nowhere.html">x</a> <a href="../start.html#nowhere">x</a> <a href="#nothing">x</a>' +
			'<a href="https://github.com/pawl-go/pawl/blob/HEAD/nowhere.go">x</a> <h1>x</h1> <h5>x</h5> <img src="../images/performance-rates.svg">' +
			'<img src="../images/nothing.svg" alt="x"> <div style="width: 400px; height: 1px"></div> <p class="pale">pale text</p> <p class="dim">dim text</p>' +
			'<style>.pale { color: #ccc } [data-theme=dark] .dim { color: #444 } [data-theme=dark] .pic .faint { fill: #444 }</style>');
		all(".copy")[0].remove();
		all(".copy button")[1].dataset.code = "other";
		const texts = all(".pic text"), at = (i, x, y) => { texts[i].setAttribute("x", x); texts[i].setAttribute("y", y) };
		at(0, -99, 9);
		texts[1].style.fontSize = "5px";
		texts[2].setAttribute("class", "faint");
		at(3, 8, 31);
		at(5, texts[4].getAttribute("x"), texts[4].getAttribute("y"));
		texts[6].style.userSelect = "none";
		all(".pic")[0].removeAttribute("aria-label");
		fetch("http://127.0.0.2:1/x").catch(() => {});
		console.error("planted");
	}`))
	_, faults := b.siteFaults()
	for _, planted := range []string{"nowhere.html leads nowhere", "start.html#nowhere leads nowhere", "#nothing leads nowhere", "nowhere.go leads nowhere",
		"2 h1", "h5 after h1", "image-alt", "nothing.svg is no picture", "light: color-contrast.*pale", "dark: color-contrast.*dim", "narrow: .* wider",
		"without a copy button", "copied other", "light: .* leaves the drawing", "narrow: .* has a size of", "dark: .* has a contrast of", "light: .* leaves its box",
		"light: .* meets ", "light: .* cannot be selected", "light: a drawing does not say", "requests http://127.0.0.2:1/x", "console: .*planted"} {
		if pattern := regexp.MustCompile(planted); !slices.ContainsFunc(faults, pattern.MatchString) {
			t.Errorf("no %q in:\n%s", planted, strings.Join(faults, "\n"))
		}
	}
}

// fieldWords are the field's names of patterns. A guide answers each.
var fieldWords = []string{"reaper", "SETNX", "Redlock", "transactional outbox", "inbox pattern", "idempotent consumer", "intent log", "fencing token",
	"two-phase guard", "checklist", "anti-pattern", "naturally idempotent"}

// The search finds pages for the words of the glossary and for the field's names of patterns, and
// none for a word that no page has.
func TestSite_Search(t *testing.T) {
	text, err := fs.ReadFile(repository, "docs/reference/glossary.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile(`(?m)^\| ([a-z]+)`).FindAllStringSubmatch(string(text), -1)
	if len(rows) < 11 {
		t.Fatalf("the glossary has %d rows", len(rows))
	}
	b := openSite(t)
	b.showPage("./")
	b.do(chromedp.Click(chromedp.CSS("button[data-open-modal]")))
	const field = `document.querySelector("#starlight__search input")`
	patience.Until(t, "the search", func() bool { return evaluate[bool](b, field+" !== null") })
	// A message such as "Searching for WORD..." stands above the results of the word before.
	search := func(word, sign string) {
		b.do(chromedp.Evaluate[chromedp.Void](fmt.Sprintf(`%s.value = %q; %[1]s.dispatchEvent(new Event("input"))`, field, word)))
		patience.Until(t, "the results of "+word, func() bool {
			return evaluate[bool](b, fmt.Sprintf(`/^(\d+|No) results? for %s/.test(document.querySelector(".pagefind-ui__message")?.innerText) && %s`, word, sign))
		})
	}
	for _, row := range rows[1:11] { // the first row is the table's head
		search(row[1], `document.querySelectorAll("a.pagefind-ui__result-link").length > 0`)
	}
	for _, word := range fieldWords {
		search(word, `document.querySelector('a.pagefind-ui__result-link[href*="/guides/"]') !== null`)
	}
	// The search shortens a word that it does not know, so its letters must be unknown, too.
	search("жжж", `document.querySelectorAll("a.pagefind-ui__result-link").length === 0`)
	b.quiet("search")
}

// The selector shows the version of the site, lists the others, and leads to them.
func TestSite_Versions(t *testing.T) {
	t.Parallel()
	b := openSite(t)
	b.showPage("docs/start.html")
	patience.Until(t, "the list of versions", func() bool { return evaluate[int](b, `version.options.length`) == 2 })
	if shown := evaluate[string](b, `version.value`); shown != unreleased {
		t.Errorf("the selector shows %q", shown)
	}
	b.do(chromedp.Evaluate[chromedp.Void](`version.value = "v9.9.9"; version.dispatchEvent(new Event("change"))`))
	patience.Until(t, "the other version", func() bool { return strings.Contains(b.address(), "/v9.9.9/") })
}

// showPage opens a page in light.
func (b *browser) showPage(address string) {
	b.Helper()
	b.visit(address)
	b.wear(looks[0])
}

// wear changes the look of the window, and waits until the page has its theme.
func (b *browser) wear(l look) {
	b.Helper()
	b.dress(l)
	theme := map[bool]string{true: "dark", false: "light"}[l.dark]
	patience.Until(b, "the page in "+theme, func() bool {
		return evaluate[string](b, `document.documentElement.dataset.theme`) == theme
	})
}

// siteFaults returns the open page's links to other pages, and what is wrong with it in every look.
func (b *browser) siteFaults() (links, faults []string) {
	b.Helper()
	links, faults = b.linkFaults()
	faults = append(faults, evaluate[[]string](b, `(async () => {
		const faults = [], all = s => [...document.querySelectorAll(s)];
		if (all("h1").length !== 1) faults.push(all("h1").length + " h1");
		const levels = all("main :is(h1, h2, h3, h4, h5, h6)").map(h => +h.tagName[1]);
		levels.forEach((l, i) => { if (i && l > levels[i-1] + 1) faults.push("h" + l + " after h" + levels[i-1]) });
		await Promise.all(all("img").map(i => i.decode().catch(() => faults.push(i.src + " is no picture"))));
		all("pre").forEach(p => { if (!p.parentElement.querySelector(".copy button")) faults.push("code without a copy button: " + p.innerText.slice(0, 80)) });
		return faults;
	})()`)...)
	for _, l := range []look{looks[0], looks[1], narrow} {
		b.wear(l)
		var found []string
		switch l {
		case looks[0]:
			found = b.violations("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa")
		case looks[1]:
			found = b.violations("color-contrast")
		}
		found = slices.Concat(found, b.wide(), b.drawingFaults())
		for _, fault := range found {
			faults = append(faults, l.name+": "+fault)
		}
	}
	return links, slices.Concat(faults, b.copyFaults(), b.heard())
}

// linkFaults returns the addresses of the linked pages, and the links that lead nowhere.
func (b *browser) linkFaults() (links, faults []string) {
	b.Helper()
	for _, link := range evaluate[[]string](b, `[...new Set([...document.links].map(a => a.href))]`) {
		ok := true
		if m := inRepository.FindStringSubmatch(link); m != nil {
			info, err := fs.Stat(repository, m[2])
			ok = err == nil && info.IsDir() == (m[1] == "tree")
		} else if to, found := strings.CutPrefix(link, b.root); found {
			page, anchor, _ := strings.Cut(to, "#")
			page = strings.TrimSuffix(page, "index.html")
			if page == "" {
				page = "./"
			}
			links = append(links, page)
			ok = leads(page, anchor)
		}
		if !ok {
			faults = append(faults, link+" leads nowhere")
		}
	}
	return links, faults
}

// leads reports whether a page with this anchor exists.
func leads(page, anchor string) bool {
	file := path.Join(site, unreleased, page)
	if page == "./" {
		file = path.Join(file, "index.html")
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return false
	}
	if anchor, err = url.PathUnescape(anchor); err != nil {
		return false
	}
	return anchor == "" || strings.Contains(string(text), fmt.Sprintf(` id=%q`, anchor))
}

// copyFaults presses every copy button, and compares what it copies with the code beside it.
func (b *browser) copyFaults() []string {
	b.Helper()
	return evaluate[[]string](b, `(async () => {
		const faults = [];
		let copied;
		navigator.clipboard.writeText = async text => { copied = text };
		for (const button of document.querySelectorAll(".copy button")) {
			copied = "nothing";
			button.click();
			const code = [...button.closest("figure").querySelectorAll(".ec-line")].map(l => l.textContent.trimEnd()).join("\n").trim();
			if (copied.split("\n").map(l => l.trimEnd()).join("\n").trim() !== code) faults.push("copied " + copied + ", not " + code);
		}
		return faults;
	})()`)
}
