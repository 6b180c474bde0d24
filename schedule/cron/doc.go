// Package cron reads cron expressions for package schedule: at this time of day, on these days, by the clocks of this place.
//
//	minute  hour  day of month  month  day of week
//	30      2     *             *      mon-fri       half past two on working days
//	0       */6   *             *      *             at 0, 6, 12 and 18 o'clock
//	0       9     l             *      *             at nine on the last day of the month
//
// Fields are those of crontab(5): lists, ranges, steps, three-letter names; day of week 0 and 7 are Sunday. If both days are given, one
// of them is enough. Also l (last day), l-2, 15w (the working day next to the 15th), lw, fri#3 (third Friday), fri#l (last Friday), and
// @hourly, @daily, @weekly, @monthly, @yearly.
//
// Where clocks are changed, for instance forward from 02:00 to 03:00 and back from 03:00 to 02:00:
//
//	                              02:30 does not exist            02:30 comes twice
//	30 2 * * *   certain hours    once, at the change (03:00)     once, the first time
//	*/30 * * * * every hour       not at all: no hour is missing  both times: an hour is an hour
//
// Several times of certain hours that a change skips make one tick. Every hour means all 24 of them, however that is written: such an
// expression ticks by elapsed time, like Vixie's cron. If neither is what you want, choose UTC.
//
// The parser is that of github.com/netresearch/go-cron; what a change of clocks does is decided here, since that parser itself runs
// 02:30 twice in autumn and at 03:30 in spring. Zones come from the machine, else from a copy inside the program. Keepers whose zones
// are of different age may find different ticks; each tick that is enqueued is enqueued once all the same.
package cron
