// Package schedule enqueues jobs at their time: every five minutes, or by a cron expression.
//
//	Put ──▶ pawl.schedule ──▶ Keeper: due? ──▶ schedule_tick ──▶ pawl.job ──▶ your handler
//	          next tick              │          one transaction:
//	             ▲                   │          the tick's job, and the next tick
//	             └───────────────────┘
//
// The next tick stands in the database, not in a process. So a process that starts again more often than its schedules tick loses
// none, and one that was away finds what it owes: the last tick that was missed, or [MissedAll] of them.
//
// Keepers may run in every process. Each tick is enqueued by one of them, in one transaction with the move to the next, under a fence
// that the slower one has lost; and its job has the key of the schedule and the moment. Due is what the database's clock says.
//
// An interval ([Every]) counts in absolute time. A time of day belongs to package schedule/cron, a module of its own, whose page says
// what happens when clocks are changed.
//
// Operators see and change schedules with package ops and `pawl schedules`.
package schedule
