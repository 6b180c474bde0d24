// Command bench measures Pawl beside what else one would take on PostgreSQL: River, and a loop written by hand.
//
//	go run ./bench -quick                            every row, within five minutes on two cores
//	go run ./bench -json bench/results/NAME.json     the full run, kept
//	go run ./bench -render FILE > docs/performance.md
//
// One private durable server (fsync, synchronous_commit and full_page_writes on, on a disk), a fresh database for each
// measurement, the contenders in turn A B C A B C within one run, and the median with the extremes of the rounds. What
// is measured is counted by the client and checked in the database afterwards.
//
// # Map
//
//	main.go       flags
//	server.go     the server, its databases, the settings that are printed
//	contender.go  what every contender can do; pawl.go, river.go, loop.go: the three
//	rows.go       the rows, in order: a table of who is measured how
//	command.go    commands, beside a table of keys written by hand
//	enqueue.go, convoy.go, drain.go, pickup.go, snapshot.go, blocked.go, straggler.go, crash.go, memory.go, zombie.go: how a row is measured
//	frozen.go     what processes of their own do that are frozen or killed
//	pgbench.go    floors: the same SQL driven by a C client
//	cost.go       WAL and processor time around a measurement
//	report.go     what a run leaves; stats.go
//	table.go      as text; render.go: as docs/performance.md
package main
