package main

import (
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

func TestPage_HasAsManyCellsAsHeads(t *testing.T) {
	t.Parallel()
	for _, line := range strings.Split(page(example()), "\n") {
		if strings.HasPrefix(line, "|") && strings.Count(line, "|") != 11 {
			t.Errorf("%d bars in %s", strings.Count(line, "|"), line)
		}
	}
}

// docs/performance.md is what the newest committed run renders to.
func TestPage_IsRenderedFromTheCommittedRun(t *testing.T) {
	t.Parallel()
	got, err := os.ReadFile("../docs/performance.md")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("results/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no committed run: %v", err)
	}
	for _, file := range files {
		r, err := load(file)
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if want := strings.TrimSuffix(filepath.Base(file), ".json"); !strings.HasPrefix(r.Settings.Commit, want) {
			t.Errorf("%s was run at commit %s: name it after that", file, r.Settings.Commit)
		}
		if page(r) == string(got) {
			return
		}
	}
	t.Errorf("docs/performance.md is the page of none of %v: go run ./bench -render FILE > docs/performance.md", files)
}
