package main

import (
	"strings"
	"testing"
)

func TestBarsText_ListsEveryBarAndCounts(t *testing.T) {
	t.Parallel()
	r := example()
	r.Rows[0].Bars = append(r.Rows[0].Bars, times("nobody", 2))
	text := strings.Join(strings.Fields(barsText(r)), " ")
	for _, want := range []string{
		"noop Pawl ≥ 2× River 2.14× met",
		"noop loop ≥ 2× River 1.42× NOT met",
		"noop nobody ≥ 2× River – not measured",
		"1 of 3 bars met, 1 not measured",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the list lacks %q:\n%s", want, text)
		}
	}
	if got := barsText(Report{Rows: []Row{{ID: "none"}}}); got != "" {
		t.Errorf("a run without bars must print no list, got %q", got)
	}
}

func TestVerdict_SaysWhyOnlyIfTheBarIsMissed(t *testing.T) {
	t.Parallel()
	r := example()
	if _, ok := r.Rows[0].verdicts()[0].explanation(); ok {
		t.Error("a bar that is met must not be explained")
	}
	r.Rows[0].Lines[0].Rounds = []Round{{Value: 30_000}}
	if _, ok := r.Rows[0].verdicts()[0].explanation(); !ok {
		t.Error("the missed bar of noop is not explained")
	}
}

func TestExplained_NamesBarsThatExist(t *testing.T) {
	t.Parallel()
	barred := map[miss]bool{}
	for _, p := range allPlans() {
		for _, b := range p.Bars {
			barred[miss{p.ID, b.Who}] = true
		}
	}
	for m, text := range explained {
		if !barred[m] {
			t.Errorf("no row %q has a bar for %q", m.row, m.who)
		}
		if strings.TrimSpace(text) == "" {
			t.Errorf("%v has an empty explanation", m)
		}
	}
}

// A bar that names a line of another row would never be measured.
func TestBars_NameLinesOfTheirRow(t *testing.T) {
	t.Parallel()
	for _, p := range allPlans() {
		lines := map[string]bool{"": true}
		for _, e := range p.entries {
			lines[e.Who] = true
		}
		for _, b := range p.Bars {
			if !lines[b.Who] || !lines[b.Of] {
				t.Errorf("%s: a bar of %q by %q, which are not both lines", p.ID, b.Who, b.Of)
			}
		}
	}
}

func TestVerdict_RoundsAwayFromABarThatItMisses(t *testing.T) {
	t.Parallel()
	row := Row{ID: "r", Unit: perSec, Lines: []Line{{Who: "a", Rounds: []Round{{Value: 2.499}}}, {Who: "b", Rounds: []Round{{Value: 1}}}}}
	fast := Row{ID: "r", Unit: ms, Less: true, Lines: []Line{{Who: "a", Rounds: []Round{{Value: 5.001}}}}}
	whole := Row{ID: "r", Unit: perSec, Lines: []Line{{Who: "a", Rounds: []Round{{Value: 2.3}}}, {Who: "b", Rounds: []Round{{Value: 1}}}}}
	held := Row{ID: "r", Unit: perSec, Lines: []Line{{Who: "a", Rounds: []Round{{Value: 79.9, Clean: 100}}}}}
	for _, c := range []struct {
		row  Row
		bar  Bar
		want string
	}{
		{row, Bar{Who: "a", Of: "b", Factor: 2.5}, "2.49×"},
		{whole, Bar{Who: "a", Of: "b", Factor: 2.3}, "2.30×"},
		{whole, Bar{Who: "a", Of: "b", Factor: 3}, "2.30×"},
		{fast, Bar{Who: "a", Factor: 5}, "5.01 ms"},
		{held, Bar{Who: "a", Factor: 0.8}, "79 %"},
	} {
		c.row.Bars = []Bar{c.bar}
		if got := c.row.verdicts()[0].reached(); got != c.want {
			t.Errorf("reached %q, want %q", got, c.want)
		}
	}
}
