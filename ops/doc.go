// Package ops reads and changes Pawl's rows on behalf of an operator: it lists dead letters,
// retries a job, pauses a queue, settles an unknown call. Use it for tools of your own; the command
// line and the dashboard call it too. No other package changes jobs on behalf of an operator.
//
// Each noun is a pair. The plural selects rows, and lists or changes many. The Ref identifies one
// row, and reads or changes it:
//
//	dead := []ops.Status{ops.StatusDeadLetter}
//	page, err := ops.Jobs{Queue: "orders", Statuses: dead}.List(ctx, pool)
//	r, err := ops.JobRef{ID: 17}.Retry(ctx, pool, ops.By{Actor: "ann", Reason: "stock is back"})
//
// The nouns are [Jobs], [Commands], [Steps], [Queues], [Lanes], [Schedules], [Deliveries], [Outbox]
// and [SequenceGates]. [Look] returns an overview, [Stales] the work that needs a decision, and
// [Explain] the history of one key. [Purge] deletes expired rows. Package doctor finds problems of
// the server, the schema and the rows.
//
// # Terms
//
//   - dead letter: a job that is not tried again until an operator decides.
//   - fence: a number of a job, command or step that grows each time it is claimed, called or
//     changed. It shows whether the row has changed since you read it.
//   - lane: jobs that run one at a time, in order. Its head is the job that has the turn.
//   - step: a recorded call to another system, of a job or a command.
//   - unknown: it cannot be known whether a step or a command took effect. A verdict settles it:
//     you ask the other system and say whether it did.
//   - sequence gate: lets a consumer's deliveries take effect in the order of their numbers.
//
// # Changes
//
// A change verb takes a [By], which says who changes something and why. It writes one row of
// pawl.audit in the same transaction as the change. It runs in your transaction, or in one of its
// own if you pass a pool or a connection. Pass [DryRun] in place of a By to learn what the verb
// would do.
//
// A Ref may also hold what you saw: the fence of a job, the head of a lane. If that has changed,
// the verb changes nothing and tells so in its [Result]. Method Ref of a listed row returns such a
// Ref.
//
// If an open transaction has locked the row, a verb waits 2 s, changes nothing and returns SQLSTATE
// 55P03, for which [pawl.Retryable] is true.
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
// Each of these raises the job's fence. The next call of a running attempt fails with
// [pawl.ErrFenceLost], so its rows roll back. After Cancel, the worker also learns of it with its
// next heartbeat.
//
// Under the policy block, a dead letter at the head of a lane blocks the lane. Retrying the head
// keeps the order. [LaneRef.Unblock] lets the lane continue without it.
//
// The verbs need the rights of pawl_operator. Reads need those of pawl_reader.
package ops
