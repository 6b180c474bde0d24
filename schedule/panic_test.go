package schedule_test

import (
	"context"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/schedule"
)

// If the parser or a plan panics, its schedule is tried again and the others go on ticking.
func TestKeeper_CronPanics(t *testing.T) {
	t.Parallel()
	for name, parse := range map[string]func(expression, zone string) (schedule.Plan, error){
		"parser panics": func(string, string) (schedule.Plan, error) { panic("boom") },
		"plan panics": func(expression, zone string) (schedule.Plan, error) {
			return schedule.Cron(expression, zone, func(time.Time) time.Time { panic("boom") }), nil
		},
		"plan exits": func(expression, zone string) (schedule.Plan, error) {
			return schedule.Cron(expression, zone, func(time.Time) time.Time { runtime.Goexit(); return time.Time{} }), nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.exec(`select pawl_v1.schedule_put('bad', 'q', 'k', '', '{"cron": "0 * * * *", "first_at": "2025-01-01 00:00Z"}'),
       pawl_v1.schedule_put('good', 'q', 'k', '', '{"every_ms": 100}')`)
			b.keep(schedule.Config{Cron: parse})
			b.untilReported(pawl.EventError, 1)
			const ticked = "select count(*) >= $1 from pawl.job as j where j.headers ->> 'pawl-schedule' = 'good'"
			was := one[int](b, "select count(*) from pawl.job")
			b.until("the good one ticks on", ticked, was+3)
		})
	}
}

// If a plan of the configuration panics when a keeper puts it, Run returns an error.
func TestKeeper_PlanPanics(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var made atomic.Bool
	plan := schedule.Cron("each hour", "UTC", func(after time.Time) time.Time {
		if made.Load() {
			panic("boom")
		}
		return after.Add(time.Hour)
	})
	k, err := schedule.NewKeeper(b.pool, schedule.Config{Hooks: b.counters.Hooks(), Cron: func(string, string) (schedule.Plan, error) { return plan, nil },
		Schedules: []schedule.Schedule{{Name: "s", Queue: "q", Kind: "k", Plan: plan}}})
	b.must(err)
	made.Store(true)
	if err := k.Run(context.WithoutCancel(t.Context())); err == nil || !strings.Contains(err.Error(), "Plan: panic: boom, at ") {
		t.Errorf("Run: %v", err)
	}
}
