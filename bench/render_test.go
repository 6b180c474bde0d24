package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func example() Report {
	rounds := func(values ...float64) (all []Round) {
		for _, v := range values {
			all = append(all, Round{Value: v, WAL: 1000, ClientCPU: 0.01, ServerCPU: 1 / v})
		}
		return all
	}
	return Report{Settings: Settings{Commit: "abc", Mode: "full"}, Rows: []Row{{
		ID: "noop", Title: "No-op", Unit: perSec, Bars: []Bar{times("Pawl", 2), times("loop", 2)},
		Lines: []Line{
			{Who: "Pawl", How: "Handle", Rounds: rounds(40_000, 50_000, 45_000)},
			{Who: "River", Base: true, Rounds: rounds(20_000, 21_000, 22_000)},
			{Who: "loop", Rounds: rounds(30_000)},
			{Who: "pgbench", Floor: true, Rounds: []Round{{Failed: "no pgbench"}}},
		},
	}}}
}

func TestTable_SaysWhichBarsAreMet(t *testing.T) {
	t.Parallel()
	text := table(example())
	for _, want := range []string{"45,000", "40,000 – 50,000", "2.14", "bar ≥ 2× River: met", "bar ≥ 2× River: NOT met", "FAILED: no pgbench"} {
		if !strings.Contains(text, want) {
			t.Errorf("the table lacks %q:\n%s", want, text)
		}
	}
}

func TestBar_OfOneselfAndOfLess(t *testing.T) {
	t.Parallel()
	held := Row{Lines: []Line{{Who: "Pawl", Rounds: []Round{{Value: 90, Clean: 100}}}}}
	if got, ok := held.reached(Bar{Who: "Pawl", Factor: 0.8}); !ok || got != 0.9 {
		t.Errorf("a line without another is measured by its clean rate: %v, %v", got, ok)
	}
	rows := Row{Less: true, Lines: []Line{{Who: "Pawl", Rounds: []Round{{Value: 2}}}}}
	if got, _ := rows.reached(Bar{Who: "Pawl", Factor: 1}); rows.met(Bar{Factor: 1}, got) {
		t.Error("two rows for one job must not meet the bar")
	}
	if _, ok := rows.reached(Bar{Who: "Pawl", Of: "River", Factor: 1}); ok {
		t.Error("a bar by a line that is not there cannot be met")
	}
}

// recorded returns the runs of a page, each with a few figures.
func recorded() publication {
	second := example()
	second.Rows[0].Lines[0].Rounds = []Round{{Value: 30_000, ClientCPU: 0.01}} // 1.42 times River
	timed := func(who string, value, p99 float64) Line {
		return Line{Who: who, Base: who == "River", Rounds: []Round{{Value: value, P99: p99}}}
	}
	main := example()
	main.Rows = append(main.Rows,
		Row{ID: "pickup", Title: "Enqueue to handler, idle", Unit: ms, Less: true, Bars: []Bar{{Who: "Pawl", Factor: 5, Meaning: "p50 ≤ 5 ms"}},
			Lines: []Line{timed("Pawl", 3.1, 5.2), timed("River", 2.8, 4)}},
		Row{ID: "crash", Title: "SIGKILL", Unit: ms, Less: true, Lines: []Line{timed("Pawl", 2400, 2426)}},
		Row{ID: "zombie", Title: "Zombie", Unit: "rows", Less: true, Lines: []Line{{Who: "Pawl", Rounds: []Round{{Value: 1}}}, {Who: "Pawl, own tx", Rounds: []Round{{Value: 1}}}}})
	return publication{main: main, second: &second, options: options{render: "a/1.json", second: "a/2.json", charts: "x"}}
}

func TestPage_HasAsManyCellsAsHeads(t *testing.T) {
	t.Parallel()
	heads := 0
	for _, line := range strings.Split(recorded().page(), "\n") {
		cells := strings.Count(line, "|")
		switch {
		case cells == 0:
			heads = 0
		case heads == 0:
			heads = cells
		case cells != heads:
			t.Errorf("%d cells below %d heads in %s", cells, heads, line)
		}
	}
}

func TestPage_ShowsTheBarsOfBothRuns(t *testing.T) {
	t.Parallel()
	text := recorded().page()
	for _, want := range []string{
		"| [noop](#no-op) | Pawl | ≥ 2× River | 2.14× | 1.42× | met, then NOT met |",
		"| [noop](#no-op) | loop | ≥ 2× River | 1.42× | 1.42× | NOT met |",
		"2 of 3 bars met. In the second run, 0 of 3 bars met, 1 not measured.",
		"**Why Pawl misses its bar (≥ 2× River):** " + explained[miss{"noop", "Pawl"}],
		"go run ./bench -render bench/results/1.json -second bench/results/2.json -charts docs/images",
		"A figure of the second run differs from it by 0 % in the median and 33 % at most (noop, Pawl)",
		"its own scale](images/performance-rates.svg)",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %q:\n%s", want, text)
		}
	}
	p := recorded()
	p.charts, p.second = "", nil
	if text := p.page(); strings.Contains(text, "images/") || strings.Contains(text, "second run") {
		t.Errorf("a page without charts and a second run must not show them:\n%s", text)
	}
}

func TestTakeaway_FollowsFromTheFigures(t *testing.T) {
	t.Parallel()
	p := recorded()
	got := takeaway(p.main)
	for _, want := range []string{
		"Pawl runs 2.1 times as many jobs a second as River if they do nothing. ",
		"An idle worker starts a job 3.10 ms after it was enqueued (River: 2.80 ms). If a worker is killed by SIGKILL, another one starts its job " +
			"within 2.4 s. If a worker is frozen past its lease, its job writes 1 row in all. ",
		" River is ahead in 1 of 2 shared rows ([pickup](#enqueue-to-handler-idle)).",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the takeaway lacks %q:\n%s", want, got)
		}
	}
	p.main.Rows[0].Lines[2].Rounds = []Round{{Value: 135_000}}
	if got, want := takeaway(p.main), "A loop without leases and retries runs 3.0 times as many jobs"; !strings.Contains(got, want) {
		t.Errorf("what is faster must be said: %s", got)
	}
	p.main.Rows[3].Lines[1].Rounds[0].Value = 2
	if got := takeaway(p.main); !strings.Contains(got, "its job writes 2 rows in all.") {
		t.Errorf("two rows must be said: %s", got)
	}
	if got := takeaway(Report{}); got != "" {
		t.Errorf("no figures, no sentence, got %q", got)
	}
}

func TestPublish_RefusesRunsThatDoNotBelong(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name, mode string) string {
		r := example()
		r.Settings.Mode = mode
		at := filepath.Join(dir, name)
		if err := r.save(at); err != nil {
			t.Fatal(err)
		}
		return at
	}
	full, quick := file("full.json", "full"), file("quick.json", "quick")
	for _, c := range []struct {
		o    options
		want string
	}{
		{options{render: filepath.Join(dir, "missing.json")}, "no such file"},
		{options{render: full, second: filepath.Join(dir, "missing.json")}, "no such file"},
		{options{render: full, second: quick}, "do not compare"},
	} {
		if _, err := publish(c.o); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: got %v, want an error with %q", c.o, err, c.want)
		}
	}
	if p, err := publish(options{render: full}); err != nil || p.second != nil {
		t.Errorf("got %v, %v", p.second, err)
	}
}

// docs/performance.md and the charts are the output of the command that the page names.
func TestPage_IsRenderedFromCommittedRuns(t *testing.T) {
	t.Parallel()
	got, err := os.ReadFile("../docs/performance.md")
	if err != nil {
		t.Fatal(err)
	}
	_, command, found := strings.Cut(string(got), "\ngo run ./bench ")
	command, _, _ = strings.Cut(command, " > ")
	o, err := parse(strings.Fields(command), io.Discard)
	if !found || err != nil {
		t.Fatalf("the page does not name its command: %v", err)
	}
	for _, file := range []*string{&o.render, &o.second} {
		if *file == "" {
			continue
		}
		*file = filepath.Join("..", *file)
		r, err := load(*file)
		if err != nil {
			t.Fatal(err)
		}
		if id := strings.TrimSuffix(filepath.Base(*file), ".json"); !strings.HasPrefix(r.Settings.Commit, id) {
			t.Errorf("%s was run at commit %s: name it after that", *file, r.Settings.Commit)
		}
	}
	p, err := publish(o)
	if err != nil {
		t.Fatal(err)
	}
	if p.page() != string(got) {
		t.Errorf("docs/performance.md is out of date: %s", p.command())
	}
	if o.charts == "" {
		return
	}
	d := rateChart(p.main)
	if file, err := os.ReadFile(filepath.Join("..", o.charts, d.name)); err != nil || string(file) != d.svg() {
		t.Errorf("the chart %s is out of date (%v): %s", d.name, err, p.command())
	}
}
