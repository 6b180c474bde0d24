// Command bench compares Pawl with alternatives on PostgreSQL: River, and a handwritten loop.
//
//	go run ./bench -help     every flag, with examples and their durations
//	go run ./bench -quick    every row, roughly
//	go run ./bench -calm -json bench/results/COMMIT.json   the full run on a quiet machine, saved
//	go run ./bench -render FILE -charts docs/images > docs/performance.md
//
// A run has one private durable server (fsync, synchronous_commit and full_page_writes on, on a
// disk) and a new database for each measurement. The contenders take turns, A B C A B C. A figure
// is the median of the rounds, with the extremes beside it. The client counts, and the database is
// checked afterwards.
//
// # Map
//
//	main.go, options.go   flags, help and refused options
//	run.go, calm.go       rounds and turns; waiting for a quiet machine
//	server.go             the server, its databases and the printed settings
//	contender.go          the interface of the contenders; pawl.go, river.go, loop.go: the three
//	rows.go               the table of rows, with their measures and bars
//	command.go, http.go   commands, called and by HTTP, beside a handwritten table of keys
//	guard.go              rows with a status, claimed and completed, beside a token by hand
//	inbox.go, outbox.go   messages received and published
//	enqueue.go, convoy.go, drain.go, pickup.go, doors.go, snapshot.go, blocked.go, straggler.go,
//	crash.go, memory.go, zombie.go   the measures of the other rows
//	frozen.go             the programs of processes that are frozen or killed
//	pgbench.go            floors: the same SQL, run by a C client
//	cost.go               WAL and processor time of a measurement
//	report.go, stats.go   the result of a run
//	bars.go, explained.go bars, and explanations of missed ones
//	table.go              a report as text
//	render.go             reports as docs/performance.md; takeaway.go: its summary
//	chart.go              the chart of rates
package main
