package dashboard

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/catalog"
)

// charts stand side by side. They show the counts of workers and consumers.
type charts []chart

func (charts) Kind() string { return "charts" }

type chart struct {
	Title  string
	Unit   string // "per minute"
	Series []series
	Top    string // the number at the upper end
	Begin  string // the time at the left end
	End    string

	write func(int64) string
}

type series struct {
	Name   string
	Class  string
	Last   string
	Most   string
	Lines  []string // points of polylines; several where numbers are missing
	points []point
}

type point struct {
	at       time.Time
	value    int64
	measured bool
}

// The area of a chart's lines, in units of its view box.
const (
	chartLeft, chartRight = 0.0, 320.0
	chartHigh, chartLow   = 1.0, 69.0
)

// A period is how far back charts reach.
type period struct {
	span   string        // of pawl.rollup
	step   time.Duration // of the chart: one span or several
	steps  int
	unit   string
	layout string // of the times at the ends
}

// periods are the choices of a viewer. Minutes are kept for 24 hours, so the oldest step of the
// last day is incomplete.
var periods = map[string]period{
	"hour": {"minute", time.Minute, 60, "per minute", "15:04 UTC"},
	"day":  {"minute", 10 * time.Minute, 24*6 - 1, "per 10 minutes", "Jan 2 15:04 UTC"},
	"week": {"hour", time.Hour, 7 * 24, "per hour", "Jan 2 15:04 UTC"},
}

type chartPlan struct {
	title  string
	levels bool // measured numbers; otherwise counts of events
	ages   bool // in milliseconds
	whole  bool // only for all queues together
	lines  []linePlan
}

type linePlan struct {
	name  string
	names []string // of pawl.rollup
}

var chartPlans = []chartPlan{
	{title: "Effects and duplicates", lines: []linePlan{{"effects", []string{"succeeded"}}, {"duplicates absorbed", []string{"duplicate_skipped", "duplicate_filtered", "replay", "guard_already_handled"}}}},
	{title: "Failures", lines: []linePlan{{"retries", []string{"retryable"}}, {"dead letters", []string{"failed", "mismatch", "invalid", "delivery_stale", "gap"}}}},
	{title: "Crashes and lost replies", lines: []linePlan{{"taken from dead workers", []string{"stale_takeover"}}, {"stale writes refused", []string{"stale_write_refused"}},
		{"COMMIT replies lost", []string{"commit_unknown"}}}},
	{title: "Age of the oldest due job", levels: true, ages: true, lines: []linePlan{{"age", []string{"oldest_due_ms"}}}},
	{title: "Jobs", levels: true, lines: []linePlan{{"due", []string{"due"}}, {"processing", []string{"processing"}}}},
	{title: "Jobs that need a person", levels: true, lines: []linePlan{{"dead letters", []string{"dead_letters"}}, {"unknown", []string{"unknown"}}}},
	{title: "Workers", levels: true, whole: true, lines: []linePlan{{"alive", []string{measured}}, {"silent", []string{"workers_silent"}}}},
}

// measured is a level that exists for each measurement. leftOut exists if a measurement left out
// some queues.
const (
	measured = "workers"
	leftOut  = "queues_left_out"
)

// history adds the charts of everything, or of one queue or consumer, up to the last whole step. If
// they cannot be read, the page has none.
func (v *view) history(source, scope string) {
	name := cmp.Or(v.param("charts"), "hour")
	p, known := periods[name]
	if !known {
		v.add(note{Class: "trouble", Text: badParameter{"charts", name, "hour, day or week"}.Error()})
		return
	}
	q := catalog.RollupQuery{Span: p.span, Source: source, Scope: scope, Names: rollupNames()}
	rows, err := see(v, func(ctx context.Context, db pawl.DB) ([]rollupRow, error) {
		now, err := catalog.Now(ctx, db)
		q.Until = now.Truncate(p.step)
		q.From = q.Until.Add(-time.Duration(p.steps) * p.step)
		if err != nil {
			return nil, err
		}
		return catalog.Rollup[rollupRow](ctx, db, q)
	})
	if err != nil {
		v.add(note{Class: "trouble", Text: "The charts could not be read: " + err.Error()})
		return
	}
	v.add(v.periodLinks(name))
	if len(rows) == 0 {
		v.add(noCharts)
		return
	}
	var all charts
	for _, plan := range chartPlans {
		if scope != "" && plan.whole || source == "consumer" && plan.levels {
			continue
		}
		all = append(all, plan.draw(p, q.From, rows, scope != ""))
	}
	v.add(all)
}

func (v *view) periodLinks(chosen string) periodChoice {
	var all periodChoice
	for _, name := range []string{"hour", "day", "week"} {
		all = append(all, choice{"Last " + name, v.with("charts", name), name == chosen})
	}
	return all
}

// A periodChoice is a row of links with one chosen.
type periodChoice []choice

type choice struct {
	Text, Link string
	Chosen     bool
}

func (periodChoice) Kind() string { return "choice" }

type rollupRow struct {
	At    time.Time `json:"at"`
	Name  string    `json:"name"`
	Value int64     `json:"value"`
}

// queueLevels are the levels of a queue.
var queueLevels = []string{"due", "oldest_due_ms", "processing", "dead_letters", "unknown"}

func rollupNames() (names []string) {
	names = append(names, leftOut)
	for _, plan := range chartPlans {
		for _, l := range plan.lines {
			names = append(names, l.names...)
		}
	}
	return names
}

// moments are the steps with a measurement, for one queue or all together. A queue whose levels are
// all 0 has no row.
func moments(p period, rows []rollupRow, one bool) map[time.Time]bool {
	was, without, own := map[time.Time]bool{}, map[time.Time]bool{}, map[time.Time]bool{}
	for _, r := range rows {
		at := r.At.Truncate(p.step)
		switch {
		case r.Name == measured:
			was[at] = true
		case r.Name == leftOut:
			without[at] = true
		case slices.Contains(queueLevels, r.Name):
			own[at] = true
		}
	}
	for at := range without {
		was[at] = was[at] && (!one || own[at])
	}
	return was
}

// draw makes a chart of rows, for one queue or for all. A missing count is 0. A level is known only
// at the moments of measurements.
func (plan chartPlan) draw(p period, from time.Time, rows []rollupRow, one bool) chart {
	type step struct {
		name string
		at   time.Time
	}
	c := chart{Title: plan.title, Unit: p.unit, Begin: from.Format(p.layout), End: from.Add(time.Duration(p.steps) * p.step).Format(p.layout), write: func(n int64) string { return number(n) }}
	switch {
	case plan.ages:
		c.Unit, c.write = "", func(n int64) string { return span(time.Duration(n) * time.Millisecond) }
	case plan.levels:
		c.Unit = ""
	}
	values, was := map[step]int64{}, moments(p, rows, one)
	for _, r := range rows {
		at := step{r.Name, r.At.Truncate(p.step)}
		if plan.levels {
			values[at] = max(values[at], r.Value)
		} else {
			values[at] += r.Value
		}
	}
	top := int64(0)
	for i, l := range plan.lines {
		s := series{Name: l.name, Class: fmt.Sprintf("line-%d", i+1)}
		for n := range p.steps {
			at := from.Add(time.Duration(n) * p.step)
			here := point{at: at, measured: !plan.levels || was[at]}
			for _, name := range l.names {
				here.value += values[step{name, at}]
			}
			s.points = append(s.points, here)
			top = max(top, here.value)
		}
		c.Series = append(c.Series, s)
	}
	top = roundUp(top, plan.ages)
	c.Top = c.write(top)
	for i := range c.Series {
		c.Series[i].layOut(top, c.write)
	}
	return c
}

// fresh is the number of steps at the end whose last number is shown as the current one, since the
// very last step may not be measured yet.
const fresh = 2

// layOut computes the points of a line.
func (s *series) layOut(top int64, write func(int64) string) {
	var line []string
	end := func() {
		if len(line) == 1 { // a point by itself is a short line
			line = append(line, line[0])
		}
		if len(line) > 0 {
			s.Lines = append(s.Lines, strings.Join(line, " "))
		}
		line = nil
	}
	s.Last, s.Most = "–", "–"
	most := int64(-1)
	for i, one := range s.points {
		if !one.measured {
			end()
			continue
		}
		x := chartLeft + (chartRight-chartLeft)*float64(i)/float64(max(len(s.points)-1, 1))
		y := chartLow - (chartLow-chartHigh)*float64(one.value)/float64(top)
		line = append(line, fmt.Sprintf("%.1f,%.1f", x, y))
		most = max(most, one.value)
		if i >= len(s.points)-fresh {
			s.Last = write(one.value)
		}
	}
	end()
	if most >= 0 {
		s.Most = write(most)
	}
}

// roundUp returns the next number of the form 1, 2 or 5 times a power of ten, at least 1. For
// milliseconds it returns at least a second.
func roundUp(n int64, ages bool) int64 {
	if ages && n < 1000 {
		return 1000
	}
	n = max(n, 1)
	power := int64(math.Pow10(int(math.Log10(float64(n)))))
	for _, digit := range []int64{1, 2, 5, 10} {
		if digit*power >= n {
			return digit * power
		}
	}
	return n
}

// Said is the text of a chart for screen readers.
func (c chart) Said() string {
	parts := []string{c.Title}
	for _, s := range c.Series {
		parts = append(parts, fmt.Sprintf("%s: last %s, highest %s", s.Name, s.Last, s.Most))
	}
	return strings.Join(parts, ". ")
}

// Table returns the numbers of a chart, newest first, without moments at which all are 0 or
// unknown.
func (c chart) Table() table {
	t := table{Caption: c.Title + " from " + c.Begin + " to " + c.End, Head: []string{"from"}, Empty: empty{Text: "All figures are 0."}}
	for _, s := range c.Series {
		t.Head = append(t.Head, "#"+s.Name)
	}
	for i := len(c.Series[0].points) - 1; i >= 0; i-- {
		row := []cell{{Text: c.Series[0].points[i].at.Format("2006-01-02 15:04 UTC")}}
		if !slices.ContainsFunc(c.Series, func(s series) bool { return s.points[i].value > 0 }) {
			continue
		}
		for _, s := range c.Series {
			row = append(row, plain(c.write(s.points[i].value)))
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}
