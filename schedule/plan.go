package schedule

import (
	"errors"
	"fmt"
	"time"
)

// A Plan is when a schedule ticks. [Every] makes one, and so does cron.Parse of the module
// schedule/cron.
type Plan struct {
	every            time.Duration
	expression, zone string
	next             func(after time.Time) time.Time
}

// Every ticks once an interval of 100 ms to 365 days, in whole milliseconds. [Put] and [NewKeeper]
// refuse others. A tick that is enqueued late does not move the next.
func Every(interval time.Duration) Plan { return Plan{every: interval} }

// Cron makes a plan for a parser of expressions. zone is the IANA name of the time zone. next
// returns the first tick after a moment, or the zero time if there is none. It must give the same
// answer in every process.
func Cron(expression, zone string, next func(after time.Time) time.Time) Plan {
	return Plan{expression: expression, zone: zone, next: next}
}

// Next returns the first tick of a cron expression after a moment. For an interval, whose ticks
// depend on the first, it returns the moment one interval later.
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

// The bounds of an interval. The table pawl.schedule checks them too.
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
	missedLimit = 1000 // ticks in one call of schedule_tick
	// walkBack bounds the walk over missed ticks. With one tick a minute that is 576,000 steps.
	walkBack = 400 * 24 * time.Hour
)

// owed walks from the first due tick to now. It returns the newest ticks, at most limit, how many
// older ones it skipped, and the first tick after now. It ignores ticks older than walkBack.
func (p Plan) owed(first, now time.Time, limit int) (ticks []time.Time, skipped int, next time.Time) {
	if now.Sub(first) > walkBack {
		first = p.Next(now.Add(-walkBack))
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
