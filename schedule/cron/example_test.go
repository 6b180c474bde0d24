package cron_test

import (
	"fmt"
	"time"

	"github.com/pawl-go/pawl/schedule/cron"
)

// When Berlin's clocks go from 02:00 to 03:00, 02:30 does not exist. The plan ticks at the change.
func ExampleParse() {
	plan, err := cron.Parse("30 2 * * *", "Europe/Berlin")
	if err != nil {
		fmt.Println(err)
		return
	}
	berlin, _ := time.LoadLocation("Europe/Berlin")
	for at, n := time.Date(2026, 3, 28, 0, 0, 0, 0, berlin), 0; n < 3; n++ {
		at = plan.Next(at)
		fmt.Println(at.In(berlin).Format(time.RFC3339))
	}
	// Output:
	// 2026-03-28T02:30:00+01:00
	// 2026-03-29T03:00:00+02:00
	// 2026-03-30T02:30:00+02:00
}
