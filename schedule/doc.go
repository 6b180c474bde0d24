// Package schedule enqueues jobs at fixed times: every five minutes, or by a cron expression. Use
// it for reports, clean-ups and other work that a clock starts. Name your schedules and run a
// [Keeper] beside the worker (package job) that has the handler:
//
//	keeper, err := schedule.NewKeeper(pool, schedule.Config{
//		Cron: cron.Parse, // of the module schedule/cron; only for cron expressions
//		Schedules: []schedule.Schedule{{
//			Name: "report", Plan: schedule.Every(24 * time.Hour), Queue: "reports", Kind: "report"}},
//	})
//	if err != nil {
//		return err
//	}
//	return keeper.Run(ctx) // until ctx ends
//
// Start with [Schedule], [Every] and [Config]. In the handler, [TickOf] returns the moment for
// which the job was enqueued. This moment is the tick.
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
// to its next tick, so one keeper enqueues each tick. A fence, which is a number that grows with
// each tick, refuses a keeper that is late. The job's key is the schedule and the moment. The
// database's clock decides when a tick is due.
//
// An interval ([Every]) counts in absolute time. For times of day use the module schedule/cron; its
// page says what happens when clocks change.
//
// Operators see and change schedules with package ops and `pawl schedules`.
package schedule
