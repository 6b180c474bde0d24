package main

// A miss is a bar that a contender may miss in a row.
type miss struct{ row, who string }

// explained has, for a bar that was missed, the floor of the row and what a profile shows. The page prints it below the row, but only where the
// run that it is made from misses the bar.
var explained = map[miss]string{
	{"enqueue-16", "Pawl"}: `The bare insert into ` + "`pawl.job`" + `, with its index, is the line "pgbench". The function adds 20 µs of the server's time to its 55.
The client takes 24 µs, nearly all of it pgx's. [0016](decisions/0016-cheap-statements.md) says what was saved and how it was measured.`,
	{"noop", "Pawl"}: `Each claim and each finish is a durable transaction, so the rate follows the disk. A quarter of the processors is idle. In the client,
decoding JSON takes 14 %, garbage collection 20 %, the stacks of new goroutines 13 % and system calls 13 %.`,
	{"noop", "Pawl, batch"}: `The rate follows the disk, as without batches: each claim and each finish is a durable transaction.`,
	{"step", "Pawl"}: `A job takes two messages, and its claim must be durable before the handler starts.
[0018](decisions/0018-one-message.md) has the profile and what was tried. In batches the bar is met with room.`,
	{"held", "Pawl"}: `The rate at the end is that of the last seconds of one round. Five minutes of half load hold the offered rate
([0014](decisions/0014-watermark.md)).`,
}

// explanation is the text for a bar that was missed, if there is one.
func (v verdict) explanation() (text string, ok bool) {
	if !v.missed() {
		return "", false
	}
	text, ok = explained[miss{v.row.ID, v.bar.Who}]
	return text, ok
}
