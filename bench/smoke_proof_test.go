//go:build proof

package main

import (
	"context"
	"strings"
	"testing"
	"time"
)

// Every row runs on every contender with a few jobs, so that the benchmark keeps working. The test
// ignores figures, except the number of rows that a zombie leaves behind. During so short a run a
// held snapshot or a busy machine may stop a contender.
func TestRun_EveryRow(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	plans := mainPlans()
	r, err := run(ctx, plans, scales["tiny"], []string{""}, "", func(line string) { t.Log(line) })
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Rows) != len(plans) {
		t.Errorf("%d rows of %d", len(r.Rows), len(plans))
	}
	for _, row := range r.Rows {
		for _, l := range row.Lines {
			for _, round := range l.Rounds {
				// Other contenders may complete nothing in so short a time.
				moved := round.Value > 0 || round.Clean > 0 || !strings.HasPrefix(l.Who, "Pawl")
				if round.Failed != "" || !moved {
					t.Errorf("%s, %s: %+v", row.ID, l.Who, round)
				}
			}
		}
		for _, b := range row.Bars {
			if got, ok := row.reached(b); row.ID == "zombie" && (!ok || !row.met(b, got)) {
				t.Errorf("%s: a frozen worker left %v rows of one job", b.Who, got)
			}
		}
	}
}
