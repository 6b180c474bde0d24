package cron

import (
	"errors"
	"fmt"
	"strings"
	"time"

	netresearch "github.com/netresearch/go-cron"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/schedule"
)

// searchYears is how far Next looks. From one 29 February to the next there may be eight years.
const searchYears = 9

var parser = netresearch.MustNewParser(netresearch.Minute | netresearch.Hour | netresearch.Dom | netresearch.Month | netresearch.Dow |
	netresearch.Descriptor | netresearch.Extended | netresearch.DowOrDom).WithMaxSearchYears(searchYears)

// Parse reads a cron expression, whose times are those of a time zone, by its IANA name ("Europe/Berlin"); an empty one is UTC. It is
// what [schedule.Config] wants as Cron.
//
// Errors: [pawl.ErrArgumentInvalid] for what is no expression, never ticks, or is no known zone.
func Parse(expression, zone string) (schedule.Plan, error) {
	p, err := parse(expression, zone)
	if err != nil {
		return schedule.Plan{}, &pawl.Error{Op: "schedule.cron", Code: pawl.CodeArgumentInvalid, Err: fmt.Errorf("cron %q in %q: %w", expression, zone, err),
			Hint: "write minute, hour, day of month, month, day of week, as in '30 2 * * *', and a zone as in 'Europe/Berlin'"}
	}
	return schedule.Cron(expression, p.zone.String(), p.next), nil
}

// MustParse is Parse for constants: it panics.
func MustParse(expression, zone string) schedule.Plan {
	p, err := Parse(expression, zone)
	if err != nil {
		panic(err)
	}
	return p
}

func parse(expression, zone string) (plan, error) {
	if zone == "Local" {
		return plan{}, errors.New("the zone of the process is not the same in every process")
	}
	location, err := time.LoadLocation(zone)
	if err != nil {
		return plan{}, err
	}
	if strings.HasPrefix(expression, "TZ=") || strings.HasPrefix(expression, "CRON_TZ=") {
		return plan{}, errors.New("the zone has an argument of its own")
	}
	parsed, err := parser.Parse(strings.ToLower(expression)) // in upper case the parser takes the H of THU for a hash
	if err != nil {
		return plan{}, err
	}
	spec, ok := parsed.(*netresearch.SpecSchedule)
	if !ok {
		return plan{}, errors.New("an interval is made by schedule.Every")
	}
	spec.Location = time.UTC // wall-clock times are sought where no clock is ever changed
	p := plan{zone: location, spec: spec, hourly: spec.Hour&everyHour == everyHour}
	if p.next(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)).IsZero() {
		return plan{}, errors.New("there is no such day")
	}
	return p, nil
}

const everyHour = 1<<24 - 1
