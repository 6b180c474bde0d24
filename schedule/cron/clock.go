package cron

import (
	"time"
	_ "time/tzdata" // for images without zones; every process must read an expression alike

	netresearch "github.com/netresearch/go-cron"
)

// A plan is an expression over the wall clocks of a zone. A wall-clock time is kept as a time in UTC with the same fields.
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
		// A clock that was set back shows again what it has shown: that tick is over.
		if at := momentOf(wall, p.zone); at.After(after) {
			return at
		}
	}
}

// nextElapsed goes by the clock as it is until it is changed, and from there by the new one.
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

// momentOf returns when the clocks show a time: the first time if they show it twice, and if they skip it, the moment of the change.
func momentOf(wall time.Time, zone *time.Location) time.Time {
	// No zone is a day away from UTC: one of these moments is before the answer, the other behind it.
	before, behind := wall.Add(-24*time.Hour), wall.Add(24*time.Hour)
	for _, near := range []time.Time{before, behind} {
		if at := wall.Add(-offset(near, zone)); wallOf(at, zone).Equal(wall) {
			return at
		}
	}
	_, change := before.In(zone).ZoneBounds()
	return change.UTC()
}
