package main

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
)

// The chart is one XML document without a script that browsers and screen readers can read.
func TestChart_IsReadableSVG(t *testing.T) {
	t.Parallel()
	text := rateChart(recorded().main).svg()
	elements := map[string]int{}
	for decoder := xml.NewDecoder(strings.NewReader(text)); ; {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("%v:\n%s", err, text)
		}
		if e, ok := token.(xml.StartElement); ok {
			elements[e.Name.Local]++
		}
	}
	if elements["title"] != 1 || elements["desc"] != 1 || elements["script"] != 0 {
		t.Errorf("it has the elements %v", elements)
	}
	for _, want := range []string{"prefers-color-scheme: dark", `role="img"`} {
		if !strings.Contains(text, want) {
			t.Errorf("it lacks %q", want)
		}
	}
	if strings.Contains(text, "NaN") || strings.Contains(text, "Inf") {
		t.Errorf("it has places that are no numbers:\n%s", text)
	}
	if rateChart(recorded().main).svg() != text {
		t.Error("it differs when it is drawn again")
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
