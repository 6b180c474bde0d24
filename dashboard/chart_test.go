package dashboard_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/pawl-go/pawl/dashboard"
)

// rolled inserts a number for a step before the one of the first call: steps may end between calls.
func (b *bed) rolled(span string, before int, kind, source, scope, name string, value int) {
	b.Helper()
	if b.rolledFrom.IsZero() {
		if err := b.pool.QueryRow(b.Context(), "select clock_timestamp()").Scan(&b.rolledFrom); err != nil {
			b.Fatal(err)
		}
	}
	b.exec(fmt.Sprintf(`insert into pawl.rollup (span, at, kind, source, scope, name, value)
values ('%[1]s', date_trunc('%[1]s', $1::timestamptz, 'UTC') - interval '%[2]d %[1]s', $2, $3, $4, $5, $6)`, span, before), b.rolledFrom, kind, source, scope, name, value)
}

var (
	polyline = regexp.MustCompile(`<polyline class="(line-\d)" points="([^"]*)"/>`)
	figures  = regexp.MustCompile(`(?s)<figure><figcaption><strong>([^<]*)</strong>.*?</figure>`)
)

// charts returns the charts of a page by title.
func charts(body string) map[string]string {
	all := map[string]string{}
	for _, m := range figures.FindAllStringSubmatch(body, -1) {
		all[m[1]] = m[0]
	}
	return all
}

// Counts are summed over all queues and consumers, or shown for one. A level is shown only where
// levels were measured.
func TestCharts_ShowWhatWasCounted(t *testing.T) {
	t.Parallel()
	b := setup(t, "", nil)
	if body := b.get("").body; !strings.Contains(body, "Nothing was counted in this time") {
		t.Errorf("before the first count: %s", body)
	}
	for before := 2; before < 62; before++ { // none in the current minute, which may end
		if before%20 > 1 {
			b.rolled("minute", before, "level", "queue", "", "workers", 2)
			b.rolled("minute", before, "level", "queue", "", "due", 70)
		}
	}
	b.rolled("minute", 5, "count", "queue", "q", "succeeded", 1200)
	b.rolled("minute", 5, "count", "consumer", "q", "succeeded", 34)
	b.rolled("minute", 7, "count", "consumer", "c", "duplicate_skipped", 5)
	b.rolled("minute", 15, "count", "queue", "elsewhere", "succeeded", 77) // in a step that is over
	b.rolled("minute", 6, "level", "queue", "q", "due", 9)
	b.rolled("hour", 30, "count", "queue", "q", "stale_takeover", 3)
	for address, want := range map[string]map[string][]string{
		"?":                       {"Effects and duplicates": {"1,234", ">5<", "per minute", "2,000"}, "Jobs": {">70<"}, "Workers": {"alive"}, "Crashes and lost replies": {"All figures are 0."}},
		"?charts=day":             {"Effects and duplicates": {">77<", "per 10 minutes"}},
		"?charts=week":            {"Effects and duplicates": {"All figures are 0."}, "Crashes and lost replies": {">3<", "per hour"}},
		"queue?name=q":            {"Effects and duplicates": {"1,200"}, "Jobs": {">9<"}},
		"consumer?name=q":         {"Effects and duplicates": {">34<"}},
		"consumer?name=elsewhere": {},
	} {
		found := charts(b.get(address).body)
		for title, texts := range want {
			for _, text := range texts {
				if !strings.Contains(found[title], text) {
					t.Errorf("%s: the chart %q lacks %q:\n%s", address, title, text, found[title])
				}
			}
		}
	}
	if found := charts(b.get("consumer?name=q").body); found["Jobs"] != "" || found["Workers"] != "" {
		t.Error("a consumer shows the levels of queues")
	}
	lines := polyline.FindAllStringSubmatch(charts(b.get("").body)["Workers"], -1)
	solid := 0
	for _, l := range lines {
		if l[1] == "line-1" {
			solid++
		}
	}
	if solid != 3 {
		t.Errorf("the line of workers has %d parts, want 3: it is interrupted where nothing was measured", solid)
	}
	if a := b.get("?charts=year"); !strings.Contains(a.body, "hour, day or week") {
		t.Errorf("a period that is none: %s", a.body)
	}
}

// A queue that was left out of a measurement shows a gap instead of 0.
func TestCharts_OfAQueueThatWasLeftOut(t *testing.T) {
	t.Parallel()
	b := setup(t, "", nil)
	for before := 2; before < 12; before++ {
		b.rolled("minute", before, "level", "queue", "", "workers", 2)
		b.rolled("minute", before, "level", "queue", "", "due", 70)
		if before > 6 {
			b.rolled("minute", before, "level", "queue", "", "queues_left_out", 3)
			b.rolled("minute", before, "level", "queue", "measured", "due", 1)
		}
	}
	for address, want := range map[string]int{"?": 10, "queue?name=measured": 10, "queue?name=other": 5} {
		points := 0
		for _, l := range polyline.FindAllStringSubmatch(charts(b.get(address).body)["Jobs that need a person"], -1) {
			if l[1] == "line-1" {
				points += len(strings.Fields(l[2]))
			}
		}
		if points != want {
			t.Errorf("%s: %d points, want %d", address, points, want)
		}
	}
}

// A measurement from long ago is not shown as the current number.
func TestCharts_NameNoOldFigureNow(t *testing.T) {
	t.Parallel()
	b := setup(t, "", nil)
	for before := 30; before < 40; before++ {
		b.rolled("minute", before, "level", "queue", "", "workers", 2)
		b.rolled("minute", before, "level", "queue", "", "due", 70)
	}
	found := charts(b.get("").body)["Jobs"]
	if !strings.Contains(found, `due <strong>–</strong>`) || !strings.Contains(found, "due: last –, highest 70") {
		t.Error(found)
	}
}

// The chart of a day begins with a complete step.
func TestCharts_OfADayBeginWithAWholeStep(t *testing.T) {
	t.Parallel()
	b := setup(t, "", nil)
	b.exec(`insert into pawl.rollup (span, at, kind, source, scope, name, value)
select 'minute', date_trunc('minute', now(), 'UTC') - n * interval '1 minute', 'count', 'queue', 'q', 'succeeded', 1 from generate_series(0, 24 * 60) as n`)
	found := charts(b.get("?charts=day").body)["Effects and duplicates"]
	if whole, rows := strings.Count(found, ">10</td>"), strings.Count(found, "<tr><td"); whole != rows || rows < 140 {
		t.Errorf("%d of %d steps are whole:\n%s", whole, rows, found)
	}
}

// The upper end of a chart is a round number that no line exceeds.
func TestCharts_RoundUp(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]int64{0: 1, 1: 1, 2: 2, 3: 5, 5: 5, 6: 10, 10: 10, 11: 20, 99: 100, 100: 100, 101: 200, 1000: 1000, 499_999: 500_000, 1 << 60: 2_000_000_000_000_000_000} {
		if got := dashboard.RoundUp(n, false); got != want {
			t.Errorf("%d: %d, want %d", n, got, want)
		}
	}
	if got := dashboard.RoundUp(3, true); got != 1000 {
		t.Errorf("3 ms: %d", got)
	}
}
