// Package ops holds the operator's verbs. It is the only code that changes jobs by hand: the command line calls it, and so
// may your own tools.
//
// Each noun is a pair. The plural selects rows, and lists or changes many. The Ref names one, and reads or changes it:
//
//	page, err := ops.Jobs{Queue: "orders", Statuses: []ops.Status{ops.StatusDeadLetter}}.List(ctx, pool)
//	r, err := ops.JobRef{ID: 17}.Retry(ctx, pool, ops.By{Actor: "ann", Reason: "the stock service is back"})
//
// [Jobs], [Commands], [Steps], [Queues], [Lanes], [Schedules], [Deliveries], [Outbox] and [SequenceGates] are the nouns. [Look] shows how everything
// stands, [Stales] what waits for a decision, [Explain] what is known of one key. [Purge] deletes what need not be remembered any more. Package doctor
// finds what is wrong with the server, the schema or the rows.
//
// # Changes
//
// A change verb takes a [By], who and why, and writes one row of pawl.audit beside the change. They commit together or not at all. It runs
// in your transaction, or in one of its own if you pass a pool or a connection. Pass [DryRun] in place of a By to learn what the verb would do.
//
// A Ref may also say what you saw: the fence of a job, the head of a lane. If that has changed since, the verb changes nothing and says so in its
// [Result]. Ref of a listed row is such a Ref.
//
// If an open transaction has the row locked, a verb waits 2 s, changes nothing and returns SQLSTATE 55P03, for which [pawl.Retryable] is true.
//
// # Jobs
//
//	            Retry                    Cancel                   Discard
//	pending     pending, due now         cancelled                deleted
//	waiting     refused                  cancelled                deleted
//	processing  refused: cancel first    cancelled, fenced out    refused: cancel first
//	unknown     refused: needs a verdict refused                  refused: needs a verdict
//	dead_letter pending, due now         refused: has ended       deleted
//	cancelled   pending, due now         refused: has ended       deleted
//
// Each of these raises the job's fence. An attempt that is still running is refused with [pawl.ErrFenceLost] at its next
// call, so its rows roll back. After Cancel its worker is told at the next heartbeat, too.
//
// A lane whose head is a dead letter stands, under the policy block. Retry of the head keeps the order. [LaneRef.Unblock] lets the lane go on
// without it.
//
// The verbs need the rights of pawl_operator. Reads need those of pawl_reader.
package ops
