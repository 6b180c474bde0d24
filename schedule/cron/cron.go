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

// searchYears bounds the search for the next tick. Two 29 Februaries may be eight years apart.
const searchYears = 9

var parser = netresearch.MustNewParser(netresearch.Minute | netresearch.Hour | netresearch.Dom | netresearch.Month | netresearch.Dow |
	netresearch.Descriptor | netresearch.Extended | netresearch.DowOrDom).WithMaxSearchYears(searchYears)

// Parse parses a cron expression in the time zone with an IANA name ("Europe/Berlin"). An empty
// zone is UTC. Set it as [schedule.Config].Cron.
//
// Errors: [pawl.ErrArgumentInvalid] if the expression cannot be parsed or never ticks, or if the
// zone is unknown.
func Parse(expression, zone string) (schedule.Plan, error) {
	p, err := parse(expression, zone)
	if err != nil {
		return schedule.Plan{}, &pawl.Error{Op: "schedule.cron", Code: pawl.CodeArgumentInvalid, Err: fmt.Errorf("cron %q in %q: %w", expression, zone, err),
			Hint: "write minute, hour, day of month, month, day of week, as in '30 2 * * *', and a zone as in 'Europe/Berlin'"}
	}
	return schedule.Cron(expression, p.zone.String(), p.next), nil
}

// MustParse is [Parse] for constants. It panics on an error.
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
	// In upper case the parser takes the H of THU for a hash.
	parsed, err := parser.Parse(strings.ToLower(expression))
	if err != nil {
		return plan{}, err
	}
	spec, ok := parsed.(*netresearch.SpecSchedule)
	if !ok {
		return plan{}, errors.New("an interval is made by schedule.Every")
	}
	spec.Location = time.UTC // the search for wall-clock times must not meet a change of clocks
	p := plan{zone: location, spec: spec, hourly: spec.Hour&everyHour == everyHour}
	if p.next(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)).IsZero() {
		return plan{}, errors.New("there is no such day")
	}
	return p, nil
}

const everyHour = 1<<24 - 1
