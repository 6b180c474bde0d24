package main

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
)

// A chart is one XML document without a script that browsers and screen readers can read.
func TestCharts_AreReadableSVG(t *testing.T) {
	t.Parallel()
	p := recorded()
	all := p.drawings()
	if len(all) != 2 {
		t.Fatalf("got %d charts, want that of the rates and that of the keys", len(all))
	}
	for _, d := range all {
		text := d.svg()
		elements := map[string]int{}
		for decoder := xml.NewDecoder(strings.NewReader(text)); ; {
			token, err := decoder.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v:\n%s", d.name, err, text)
			}
			if e, ok := token.(xml.StartElement); ok {
				elements[e.Name.Local]++
			}
		}
		if elements["title"] != 1 || elements["desc"] != 1 || elements["script"] != 0 {
			t.Errorf("%s has the elements %v", d.name, elements)
		}
		for _, want := range []string{"prefers-color-scheme: dark", `role="img"`} {
			if !strings.Contains(text, want) {
				t.Errorf("%s lacks %q", d.name, want)
			}
		}
		if strings.Contains(text, "NaN") || strings.Contains(text, "Inf") {
			t.Errorf("%s has places that are no numbers:\n%s", d.name, text)
		}
		if again := recorded().drawings(); text != again[0].svg() && text != again[1].svg() {
			t.Errorf("%s differs when it is drawn again", d.name)
		}
	}
}

func TestRateChart_HasABarForEachContenderButTheFloor(t *testing.T) {
	t.Parallel()
	text := rateChart(example()).svg()
	for _, want := range []string{"45,000 jobs/s", "21,000 jobs/s", "No-op, jobs/s: Pawl 45,000; River 21,000; loop 30,000."} {
		if !strings.Contains(text, want) {
			t.Errorf("the chart lacks %q:\n%s", want, text)
		}
	}
	if rateChart(Report{}) != nil {
		t.Error("no rows, no chart")
	}
}

func TestSizeChart_DrawsWhatEachSizeReached(t *testing.T) {
	t.Parallel()
	p := recorded()
	row := p.growth.Rows[0]
	text := sizeChart(row).svg()
	for _, want := range []string{"10,000,000", "remembered keys (logarithmic)", "Pawl, jobs/s: 5,100 at 0; 4,900 at 1,000,000; 4,600 at 10,000,000 remembered keys."} {
		if !strings.Contains(text, want) {
			t.Errorf("the chart lacks %q:\n%s", want, text)
		}
	}
	row.Lines[0].Rounds = []Round{{Failed: "no disk"}}
	if text := sizeChart(row).svg(); strings.Contains(text, "at 0;") {
		t.Error("a size without a figure must be left out")
	}
	waits := Row{ID: "w", Title: "Waits", Unit: ms, XLabel: "processes", Lines: []Line{
		{Who: "Pawl, 1", X: 1, Rounds: []Round{{Value: 2, P99: 7}}}, {Who: "Pawl, 4", X: 4, Rounds: []Round{{Value: 3, P99: 9}}},
		{Who: "River, 1", X: 1, Rounds: []Round{{Value: 5, P99: 8}}}, {Who: "River, 4", X: 4, Rounds: []Round{{Value: 6, P99: 8}}}}}
	text = sizeChart(waits).svg()
	for _, want := range []string{"Pawl, p99", "River, median", "3 at 4 with p99 9", `class="c1 line tail"`} {
		if !strings.Contains(text, want) {
			t.Errorf("the chart lacks %q:\n%s", want, text)
		}
	}
	if strings.Contains(text, "logarithmic") {
		t.Error("sizes from 1 to 4 need no logarithmic scale")
	}
	if sizeChart(Row{XLabel: "keys", Lines: []Line{{X: 5, Rounds: []Round{{Value: 1}}}}}) != nil || sizeChart(example().Rows[0]) != nil {
		t.Error("a row of one size, or of none, has no chart")
	}
}

func TestRoundUp_QuartersWell(t *testing.T) {
	t.Parallel()
	for v, want := range map[float64]float64{0: 1, 0.7: 0.8, 1: 1, 3: 3.2, 9: 10, 5200: 6000, 21_000: 24_000} {
		if got := roundUp(v); got < want*0.999 || got > want*1.001 {
			t.Errorf("roundUp(%v) = %v, want %v", v, got, want)
		}
	}
}
