package schedule

import (
	"testing"
	"time"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func each(step time.Duration) Plan {
	return Cron("each", "UTC", func(after time.Time) time.Time { return after.Truncate(step).Add(step) })
}

// owed returns the newest due ticks up to the limit, in order, and the next one.
func TestPlan_Owed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		plan           Plan
		first          time.Time
		limit          int
		ticks, skipped int
		next           time.Duration // after noon
	}{
		"not due":              {each(time.Hour), noon.Add(time.Nanosecond), 5, 0, 0, 1},
		"due now":              {each(time.Hour), noon, 5, 1, 0, time.Hour},
		"three":                {each(time.Hour), noon.Add(-2 * time.Hour), 5, 3, 0, time.Hour},
		"as many as the limit": {each(time.Hour), noon.Add(-4 * time.Hour), 5, 5, 0, time.Hour},
		"one more":             {each(time.Hour), noon.Add(-5 * time.Hour), 5, 5, 1, time.Hour},
		"last":                 {each(time.Minute), noon.Add(-24 * time.Hour), 1, 1, 1440, time.Minute},
		"beyond the horizon":   {each(time.Hour), noon.AddDate(-30, 0, 0), 5, 5, 400*24 - 5, time.Hour},
	} {
		ticks, skipped, next := c.plan.owed(c.first, noon, c.limit)
		if len(ticks) != c.ticks || skipped != c.skipped || !next.Equal(noon.Add(c.next)) {
			t.Errorf("%s: %d ticks, %d skipped, next %v", name, len(ticks), skipped, next)
		}
		for i, tick := range ticks {
			step := c.plan.Next(noon).Sub(noon)
			if want := noon.Add(-time.Duration(len(ticks)-1-i) * step); c.ticks > 1 && !tick.Equal(want) {
				t.Errorf("%s: tick %d is %v, want %v", name, i, tick, want)
			}
		}
	}
	ends := Cron("ends", "UTC", func(time.Time) time.Time { return time.Time{} })
	if ticks, _, next := ends.owed(noon, noon, 5); len(ticks) != 1 || !next.IsZero() {
		t.Errorf("%v, %v", ticks, next)
	}
}

// owed takes a bounded number of steps for a schedule that was not kept for 50 years.
func TestPlan_OwedIsBounded(t *testing.T) {
	t.Parallel()
	steps := 0
	plan := Cron("each minute", "UTC", func(after time.Time) time.Time { steps++; return after.Truncate(time.Minute).Add(time.Minute) })
	if ticks, _, _ := plan.owed(noon.AddDate(-50, 0, 0), noon, missedLimit); len(ticks) != missedLimit {
		t.Errorf("%d ticks", len(ticks))
	}
	if most := int(walkBack/time.Minute) + 2; steps > most {
		t.Errorf("%d steps, want at most %d", steps, most)
	}
}
