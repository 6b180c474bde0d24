//go:build proof

package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/consumer"
)

var growthTiny = growthSizes{keys: []int{0, 1000}, jobs: []int{1000}, processes: []int{1, 2}, octets: []int{100, 100_000}}

// A measure that finds a wrong number of rows returns no figure.
func TestGrowth_WrongCountsFail(t *testing.T) {
	h, err := startHost(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	defer h.stop()
	one := consumer.Config{Concurrency: inFlight, Handler: consumer.HandleTx(applyOne)}
	idle := func(context.Context, *bed) (string, error) { return "", errors.New("nothing was purged") }
	for name, c := range map[string]struct {
		on  system
		m   measure
		why string
	}{
		"keys":     {fillInbox.of(10), inboxBeside(one, randomKey, 11), "seen beside"},
		"wait":     {fillInbox.of(10), inboxWait(one, &halfLoad{}, 9), "seen beside"},
		"repeated": {fillInbox.of(10), inboxBeside(one, func() string { return "the same" }, 10), "acknowledged"},
		"commands": {fillCommand.of(10), commandsBeside(11), "remembered beside"},
		"jobs":     {jobsWaiting(1000), enqueueBeside(999), "jobs wait"},
		"drain": {pawlSystem, func(ctx context.Context, b *bed, s scale) (Round, error) {
			s.drain = 0
			return b.drainWaiting(ctx, noop, 10, s)
		}, "had ended"},
		"purge":  {fillInbox.of(0), claimsBeside(&halfLoad{}, purging), "deleted nothing"},
		"vacuum": {fillInbox.of(0), claimsBeside(&halfLoad{}, vacuuming), "dead keys"},
		"idle":   {fillInbox.of(0), claimsBeside(&halfLoad{}, idle), "nothing was purged"},
	} {
		b, err := h.bed(t.Context(), c.on)
		if err != nil {
			t.Fatal(err)
		}
		if r, err := c.m(t.Context(), b, scales["tiny"]); err == nil || !strings.Contains(err.Error(), c.why) {
			t.Errorf("%s: %v, %+v; want an error with %q", name, err, r, c.why)
		}
		b.close(t.Context())
	}
}

// Only responses that contain a job count, and only while the timer records.
func TestClaimTimer(t *testing.T) {
	h, err := startHost(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	defer h.stop()
	b, err := h.bed(t.Context(), jobsWaiting(3))
	if err != nil {
		t.Fatal(err)
	}
	defer b.close(t.Context())
	timer, done, err := b.timed(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	conn := b.contender.(*pawlQueue).pool
	query := func(sql string) {
		t.Helper()
		rows, err := conn.Query(t.Context(), sql)
		if err == nil {
			_, err = pgx.CollectRows(rows, pgx.RowToMap)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	var worker int64
	if err := conn.QueryRow(t.Context(), "insert into pawl.worker (name) values ('w') returning id").Scan(&worker); err != nil {
		t.Fatal(err)
	}
	claim := "select * from pawl_v1.job_claim('bench', (select max(id) from pawl.worker), 1)"
	turn := "select * from pawl_v1.job_exchange('{}', '{}', 'bench', (select max(id) from pawl.worker), 1)"
	query(claim)
	timer.record(true)
	query("select 1")
	query(claim)
	query(turn)
	query(claim) // no job is left
	query(turn)
	var r Round
	if err := timer.into(&r); err != nil || r.Count != 2 {
		t.Errorf("%d calls counted, want 2; %v", r.Count, err)
	}
}

// Each growth row runs at tiny sizes. The measures compare their work with the database and fail if
// it differs.
func TestRun_EveryRowOfGrowth(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	plans := growthTiny.plans()
	r, err := run(ctx, plans, scales["tiny"], []string{""}, "", func(line string) { t.Log(line) })
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Rows) != len(plans) {
		t.Errorf("%d rows of %d", len(r.Rows), len(plans))
	}
	for _, row := range r.Rows {
		for i, l := range row.Lines {
			if len(l.Rounds) != 1 {
				t.Errorf("%s, %s: %d rounds", row.ID, l.Who, len(l.Rounds))
			}
			for _, round := range l.Rounds {
				timed := !row.isRate()
				if round.Failed != "" || !(round.Value > 0) || round.Count == 0 || timed && round.P99 < round.Value || !timed && round.ClientCPU+round.ServerCPU <= 0 {
					t.Errorf("%s, %s: %+v", row.ID, l.Who, round)
				}
			}
			if row.XLabel != "" && i > 0 && l.X <= row.Lines[i-1].X {
				t.Errorf("%s, %s: stands at %v, the line before at %v", row.ID, l.Who, l.X, row.Lines[i-1].X)
			}
		}
	}
}
