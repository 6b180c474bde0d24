package schedule

import (
	"errors"
	"fmt"
	"time"
)

// A Plan says when a schedule ticks. It is made by [Every], or by cron.Parse of package schedule/cron.
type Plan struct {
	every            time.Duration
	expression, zone string
	next             func(after time.Time) time.Time
}

// Every ticks once an interval: 100 ms to 365 days, whole milliseconds. The ticks keep their grid, however late each is enqueued.
func Every(interval time.Duration) Plan { return Plan{every: interval} }

// Cron makes a plan of an expression and the IANA name of its time zone. It is for parsers: next returns the first tick after a moment,
// or the zero time if there is none, and must answer the same in every process.
func Cron(expression, zone string, next func(after time.Time) time.Time) Plan {
	return Plan{expression: expression, zone: zone, next: next}
}

// Next returns the first tick of a cron expression after a moment. Of an interval, whose ticks depend on its first, it is the moment
// one interval later.
func (p Plan) Next(after time.Time) time.Time {
	if p.next != nil {
		return p.next(after)
	}
	return after.Add(p.every)
}

// String returns the plan as people write it.
func (p Plan) String() string {
	if p.next != nil {
		return p.expression + " " + p.zone
	}
	return "every " + p.every.String()
}

// The bounds of an interval, as the table has them.
const (
	minEvery = 100 * time.Millisecond
	maxEvery = 365 * 24 * time.Hour
)

func (p Plan) check() error {
	switch {
	case p.next != nil:
		return nil
	case p.every == 0:
		return errors.New("the Plan is empty: make it with Every or cron.Parse")
	case p.every < minEvery || p.every > maxEvery || p.every%time.Millisecond != 0:
		return fmt.Errorf("an interval must lie between %v and %v, in whole milliseconds, it is %v", minEvery, maxEvery, p.every)
	}
	return nil
}

const (
	missedLimit = 1000 // ticks of one schedule_tick
	// horizon bounds the walk through what was missed: a minute's schedule over it is half a million steps.
	horizon = 400 * 24 * time.Hour
)

// owed walks from the first tick that is due to now. It returns the newest limit of the ticks, how many older ones it left out, and
// the first tick after now. What is older than the horizon is not counted.
func (p Plan) owed(first, now time.Time, limit int) (ticks []time.Time, skipped int, next time.Time) {
	if now.Sub(first) > horizon {
		first = p.Next(now.Add(-horizon))
	}
	for next = first; !next.IsZero() && !next.After(now); next = p.Next(next) {
		if len(ticks) == limit {
			ticks = ticks[1:]
			skipped++
		}
		ticks = append(ticks, next)
	}
	return ticks, skipped, next
}
