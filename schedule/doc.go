// Package schedule enqueues jobs at fixed times: every five minutes, or by a cron expression.
//
//	Put ──▶ pawl.schedule ──▶ Keeper: due? ──▶ schedule_tick ──▶ pawl.job ──▶ your handler
//	          next tick              │          one transaction:
//	             ▲                   │          the tick's job, and the next tick
//	             └───────────────────┘
//
// The next tick is a row in the database, so restarts lose no tick. After an outage a keeper
// enqueues the last missed tick, or all of them with [MissedAll].
//
// A keeper may run in every process. One transaction enqueues a tick's job and moves the schedule
// to its next tick, under a fence, so one keeper enqueues each tick. The job's key is the schedule
// and the moment. The database's clock decides when a tick is due.
//
// An interval ([Every]) counts in absolute time. For times of day use the module schedule/cron; its
// page says what happens when clocks change.
//
// Operators see and change schedules with package ops and `pawl schedules`.
package schedule
