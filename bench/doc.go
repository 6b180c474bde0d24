// Command bench compares Pawl with alternatives on PostgreSQL: River, and a handwritten loop.
//
//	go run ./bench -help                                   every flag, with examples and the time each takes
//	go run ./bench -quick                                  every row, roughly
//	go run ./bench -calm -json bench/results/COMMIT.json   the full run on a quiet machine, kept
//	go run ./bench -render FILE -charts docs/images > docs/performance.md
//
// A run has one private durable server (fsync, synchronous_commit and full_page_writes on, on a
// disk) and a new database for each measurement. The contenders take turns, A B C A B C. A figure
// is the median of the rounds, with the extremes beside it. The client counts, and the database is
// checked afterwards.
//
// # Map
//
//	main.go, options.go   flags, help, and what is refused before anything is measured
//	run.go                rounds and turns; calm.go: waits for a quiet machine, and what the host took
//	server.go             the server, its databases, the settings that are printed
//	contender.go          what every contender can do; pawl.go, river.go, loop.go: the three
//	rows.go               the rows of the main suite, in order: a table of who is measured how, and of the bars
//	command.go, http.go   commands, called and as HTTP requests, beside a table of keys written by hand
//	inbox.go, outbox.go   messages received and published
//	enqueue.go, convoy.go, drain.go, pickup.go, doors.go, snapshot.go, blocked.go, straggler.go, crash.go, memory.go, zombie.go: how a row is measured
//	frozen.go             what processes of their own do that are frozen or killed
//	pgbench.go            floors: the same SQL driven by a C client
//	cost.go               WAL and processor time around a measurement
//	growth.go             the suite growth: its sizes, their flags and its rows; growth_keys.go, growth_jobs.go, growth_processes.go,
//	                      growth_octets.go, growth_claim.go: how each is measured; growth_fill.go: how a table is filled
//	report.go             what a run leaves; stats.go
//	bars.go, explained.go whether a bar is met, and why not
//	table.go              a report as text
//	render.go             reports as docs/performance.md; takeaway.go: its first sentences
//	barchart.go, linechart.go, svg.go   its charts
package main
