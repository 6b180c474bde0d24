package cron

import (
	"time"
	_ "time/tzdata" // for images without time zones: every process must compute the same ticks

	netresearch "github.com/netresearch/go-cron"
)

// A plan is an expression in the wall-clock time of a zone. A wall-clock time is a time.Time in UTC
// with the same fields.
type plan struct {
	zone   *time.Location
	spec   *netresearch.SpecSchedule
	hourly bool // it ticks in every hour of the day
}

// next returns the first tick after a moment, or the zero time.
func (p plan) next(after time.Time) time.Time {
	if p.hourly {
		return p.nextElapsed(after)
	}
	for wall := wallOf(after, p.zone); ; {
		if wall = p.spec.Next(wall); wall.IsZero() {
			return time.Time{}
		}
		// After a clock goes back it shows the same times again, whose ticks are over.
		if at := momentOf(wall, p.zone); at.After(after) {
			return at
		}
	}
}

// nextElapsed returns the next tick of an expression that allows all hours: it applies the offset
// before a change of clocks up to the change, and the new one from there.
func (p plan) nextElapsed(after time.Time) time.Time {
	for {
		wall := p.spec.Next(wallOf(after, p.zone))
		if wall.IsZero() {
			return time.Time{}
		}
		at := wall.Add(-offset(after, p.zone))
		_, change := after.In(p.zone).ZoneBounds()
		if change.IsZero() || at.Before(change) {
			return at
		}
		if first := wallOf(change, p.zone); p.spec.Next(first.Add(-time.Nanosecond)).Equal(first) {
			return change.UTC()
		}
		after = change
	}
}

func wallOf(at time.Time, zone *time.Location) time.Time { return at.UTC().Add(offset(at, zone)) }

func offset(at time.Time, zone *time.Location) time.Duration {
	_, seconds := at.In(zone).Zone()
	return time.Duration(seconds) * time.Second
}

// momentOf returns when the clocks show a wall-clock time: the first of two moments, or the moment
// of the change if the clocks skip that time.
func momentOf(wall time.Time, zone *time.Location) time.Time {
	// Every zone is less than a day away from UTC, so these two moments enclose the answer.
	before, behind := wall.Add(-24*time.Hour), wall.Add(24*time.Hour)
	for _, near := range []time.Time{before, behind} {
		if at := wall.Add(-offset(near, zone)); wallOf(at, zone).Equal(wall) {
			return at
		}
	}
	_, change := before.In(zone).ZoneBounds()
	return change.UTC()
}
