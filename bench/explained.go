package main

// A miss identifies a bar by its row and contender.
type miss struct{ row, who string }

// disturbed explains rows of milliseconds in the second run.
const disturbed = `The first run meets the bar. The machine was not quiet in the second one: the host took 7 % of the processors' time in this row, and files were edited on the machine meanwhile.`

// explained has, for a missed bar, the floor of the row and the result of a profile. The page
// prints it below the row if one of its runs misses the bar.
var explained = map[miss]string{
	{"enqueue-1", "Pawl"}: `The bare insert into ` + "`pawl.job`" + `, sent by pgx without a function (line "pgx"), is 1.75 times as fast as River. With one caller, a job costs
one round trip and one flush of the log, with River as well. The function adds 38 µs of processor time to the 321 µs of that insert, which does not explain the missing part.
A third of the client's time is spent in system calls. [0016](decisions/0016-cheap-statements.md) lists the savings and how they were measured.`,
	{"enqueue-16", "Pawl"}: `The first run meets the bar. The machine was slower in the second one: the SQL alone (line "pgbench") reached 8,031 jobs/s, and 14,183 jobs/s in the first.`,
	{"noop", "Pawl"}: `In the first run the worker made one exchange at a time. So one process of the server did all the work, at nine tenths of a processor. Now a worker makes two, and the second run meets
the bar ([0051](decisions/0051-exchanges.md)). The claim and the finish alone, sent by four C clients (line "pgbench"), reach 2.15 times the rate of River in the first run.`,
	{"noop", "Pawl, batch"}: `The transaction of a batch first holds its jobs and ends them itself. That costs a job 45 µs of processor time, and Handle costs 27 µs. Use Handle for handlers that
write nothing and need no transaction. The claim and the finish alone, sent by "pgbench", reach 2.15 times the rate of River.`,
	{"step", "Pawl"}: `The loop by hand, in Go, without leases, reaches 2.14 times the rate of River. Three messages and one durable commit a job are the floor of a client in Go on two
processors, and Pawl reaches 88 % of that. Only the SQL alone, sent by a C client, reaches the bar (3.25 times). In Pawl's client a third of the time goes to system calls.
[0018](decisions/0018-one-message.md) and [0039](decisions/0039-finish-first.md) describe the attempts. In batches a job takes a tenth of the processor time.`,
	{"effect-batch", "Pawl, batch"}: `By processor time the bar is met: a job of Pawl takes 46 µs and one of River 1,182 µs, 25.4 times as much. The rate also depends on the disk: it is 78 % of the rate that the same
SQL reaches with a C client. The client takes 14 µs a job: system calls 18 %, garbage collection 13 %, the handlers' JSON 10 %, the answers of hold and finish 10 %.`,
	{"pickup-doors", "Pawl, stored"}:     disturbed,
	{"pickup-doors", "Pawl, stored, tx"}: disturbed,
	{"pickup-doors", "Pawl, schedule"}:   disturbed,
	{"straggler", "Pawl"}:                `The first run meets the bar. The machine was slower in the second one: compared with the first run, the p99 of River is 1.6 times as long, of the loop 2.3 times, of Pawl 2.0 times.`,
	{"held", "Pawl"}: `While the snapshot is held, no dead row can be removed. Each claim passes the rows that died since the last watermark. The rate at the end is that of the last seconds of
one round of full load. River keeps 42 % and the loop 9 %. At half load for five minutes Pawl keeps the offered rate (the next row). [0014](decisions/0014-watermark.md) describes the attempts.`,
	{"command-fresh", "Pawl"}: `The line "empty functions" has two functions that check nothing, with as many messages and the same row. It reaches 0.88 times the rate of the table by hand. Counted in instructions of the server, a
command takes 824,000, these two functions 328,000 and the table by hand 207,000. Four parts of the difference are known. A statement that is planned anew for each command takes 73,000, the pinned search_path 66,000, the
row's checks 53,000 and the savepoint around the handler 30,000. Each of them keeps a promise ([0047](decisions/0047-commands-written-once.md), [0035](decisions/0035-search-path.md)), so they stay.`,
}

// explanation returns the explanation of a missed bar, if there is one.
func (v verdict) explanation() (text string, ok bool) {
	if !v.missed() {
		return "", false
	}
	text, ok = explained[miss{v.row.ID, v.bar.Who}]
	return text, ok
}
