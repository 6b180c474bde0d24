// Package step calls systems that share no transaction with the database, and remembers how each call ended.
//
// A step of a job, of a delivery under a lease or of a leased command is planned in the database, called, and recorded. A later
// attempt finds the recorded result and does not call again, so a handler resumes after its last finished step. If the process
// dies between the call and the record, nobody knows whether it was executed; what then may be done is the step's [Recovery]. Where even
// that cannot tell, the step is unknown: it is never called again in silence, the job waits, and [Reconcile] or an operator
// settles it.
//
// What no library can do: a process that is frozen between the last look at the clock and the write to the socket sends its request
// when it wakes, however late. With [Keyed] the provider drops it, as long as it remembers the key; with [Checked] it is a second
// effect, seen and reported ([pawl.EventStepTwice]), and not prevented. See docs/guides/steps.md.
package step
