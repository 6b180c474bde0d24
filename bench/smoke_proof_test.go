//go:build proof

package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/consumer"
)

// Every row runs on every contender with a few jobs, so that the benchmark keeps working. The test
// ignores figures, except the number of rows that a zombie leaves behind. During so short a run a
// held snapshot or a busy machine may stop a contender.
func TestRun_EveryRow(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	plans := allPlans()
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

// A measure that finds a wrong number of rows returns no figure.
func TestMeasure_WrongCountsFail(t *testing.T) {
	h, err := startHost(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	defer h.stop()
	idle := func(context.Context, pgx.Tx, consumer.Message[[]byte]) error { return nil }
	for name, c := range map[string]struct {
		m   measure
		why string
	}{
		"messages without effects": {inboxOf(consumer.Config{Concurrency: inFlight, Handler: consumer.HandleTx(idle)}), "acknowledged"},
		"rows that are not completed": {guarded(func(context.Context, *bed) (rowWorker, func(), error) {
			return func(context.Context, int64) error { return nil }, func() {}, nil
		}), "0 completed"},
		"jobs that did not run": {func(ctx context.Context, b *bed, s scale) (Round, error) {
			s.drain = 0
			return drain(noop, batchSize)(ctx, b, s)
		}, "had ended"},
	} {
		b, err := h.bed(t.Context(), pawlSystem)
		if err != nil {
			t.Fatal(err)
		}
		if r, err := c.m(t.Context(), b, scales["tiny"]); err == nil || !strings.Contains(err.Error(), c.why) {
			t.Errorf("%s: %v, %+v; want an error with %q", name, err, r, c.why)
		}
		b.close(t.Context())
	}
}
