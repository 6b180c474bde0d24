// Package step calls systems outside the database and stores how each call ended.
//
// A step belongs to a job, to a delivery under a lease or to a leased command. It is planned in the
// database, called, and recorded. A later attempt finds the stored result and does not call again,
// so a handler resumes after its last finished step.
//
// If the process dies between the call and the record, the outcome is unknown. The step's
// [Recovery] decides what may be done then. If that cannot tell either, the step becomes unknown:
// it is not called again, its job waits, and [Reconcile] or an operator settles it.
//
// One case cannot be prevented. A process may freeze between the last check of the clock and the
// write to the socket, and send its request when it wakes. With [Keyed] the provider drops that
// request while it remembers the key. With [Checked] it is a second effect, which is only reported
// ([pawl.EventStepTwice]). See docs/guides/steps.md.
package step

// For maintainers: the files by step of a call.
//
//	plan       run.go checks the Step; taking.go repeats plan, call and record
//	call       taking.go; call.go is what fn gets; transport.go sends; outcome.go reads the error
//	probe      recovery.go, reconcile.go (ask)
//	record     record.go, result.go
//	reconcile  reconcile.go, for unknown steps, apart from their handlers
//
// plan takes one connection and locks in this order: the row of the job, delivery or command
// (Holder.Hold), then the step's row. If the step is unknown, step_end and step_settle lock its job
// first, too. No connection or lock is held during a call, a probe or a wait.
