// Package cron parses cron expressions for package schedule, each in a time zone. Use it for times
// of day; for intervals schedule.Every is enough. Give the keeper the parser, and a schedule its
// plan:
//
//	schedule.Config{Cron: cron.Parse, Schedules: []schedule.Schedule{{Name: "report",
//		Plan: cron.MustParse("30 2 * * mon-fri", "Europe/Berlin"), Queue: "reports", Kind: "report"}}}
//
// An expression has five fields:
//
//	minute  hour  day of month  month  day of week
//	30      2     *             *      mon-fri       half past two on working days
//	0       */6   *             *      *             at 0, 6, 12 and 18 o'clock
//	0       9     l             *      *             at nine on the last day of the month
//
// Fields are those of crontab(5): lists, ranges, steps and three-letter names. Day of week 0 and 7
// are Sunday. If both day fields are given, a day that matches one of them is enough. Also
// accepted: l (last day), l-2, 15w (the working day next to the 15th), lw, fri#3 (third Friday),
// fri#l (last Friday), and @hourly, @daily, @weekly, @monthly, @yearly.
//
// When clocks go forward from 02:00 to 03:00, or back from 03:00 to 02:00:
//
//	                              02:30 does not exist            02:30 comes twice
//	30 2 * * *   certain hours    once, at the change (03:00)     once, the first time
//	*/30 * * * * every hour       does not tick                   ticks both times
//
// If a change skips several times of an expression with certain hours, it ticks once. An expression
// that allows all 24 hours ticks by elapsed time, like Vixie's cron. If neither fits, choose UTC.
//
// The parser is github.com/netresearch/go-cron. This package decides about changes of clocks, since
// that parser runs 02:30 twice in autumn and at 03:30 in spring. Time zones come from the machine,
// or else from a copy inside the program. Keepers with time zone data of different versions may
// compute different ticks, but each tick is still enqueued once.
package cron
