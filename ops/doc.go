// Package ops holds the operator's verbs. It is the only code that changes jobs by hand: the command line calls it, and so
// may your own tools.
//
//	            Retry                    Cancel                   Discard
//	pending     pending, due now         cancelled                deleted
//	waiting     refused                  cancelled                deleted
//	processing  refused: cancel first    cancelled, fenced out    refused: cancel first
//	unknown     refused: needs a verdict refused                  refused: needs a verdict
//	dead_letter pending, due now         refused: has ended       deleted
//	cancelled   pending, due now         refused: has ended       deleted
//
// Each of these takes one job, in your transaction or in one of its own, and writes one row of pawl.audit beside the change:
// who, what, why, the job before and after. They commit together or not at all.
//
// Each change raises the job's fence. An attempt that is still running is refused with [pawl.ErrFenceLost] at its next
// word, so its rows roll back. After Cancel its worker is told at the next heartbeat, too. The one attempt that cannot be
// fenced out is the one whose transaction has the row locked: the verb then waits 2 s, changes nothing and returns
// SQLSTATE 55P03, for which [pawl.Retryable] is true.
//
// A lane whose head is a dead letter stands, under the policy block: [Lanes] finds it, Retry of the head keeps its order,
// [UnblockLane] lets it go on without. [SetLanePolicy] says what happens next time.
//
// A job that finished is gone, unless its queue keeps such for seven days: [SetQueue] says so, [Archived] finds it.
//
// A step of package effect of which nobody knows whether it landed is found by [Effects] and settled by [SettleEffect]; the job that
// waits for it goes on. [Stales] lists all that waits for somebody.
//
// [Explain] tells what is known of one key, [Look] how everything stands, [Stales] what waits for somebody, [Diagnose] what is wrong with the
// server, the schema or the rows. [RetryAll] and [DiscardAll] are Retry and Discard for all that a filter selects; [Purge] deletes what need
// not be remembered any more, and leaves one record.
//
// The verbs need the rights of pawl_operator; all that only looks needs those of pawl_reader.
package ops
