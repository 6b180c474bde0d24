// Package step calls systems outside the database and stores how each call ended. Use it in a
// handler that charges a card or sends a mail: a later attempt finds the stored result and does not
// call again. Wrap each call in [Run], and say with a [Recovery] what may be done if its outcome is
// unknown:
//
//	client := &http.Client{Transport: &step.Transport{}} // sends the idempotency key
//
//	charge, err := step.Run(ctx, pool, task, step.Step{
//		Name: "charge", Recovery: step.Keyed(24 * time.Hour), Request: payment, Provider: "stripe",
//	}, func(ctx context.Context, c step.Call) (Charge, error) {
//		return post(ctx, client, payment)
//	})
//	if err != nil {
//		return err // the job is retried, or waits for a verdict
//	}
//
// Start with [Run], [Step] and [Keyed], or another Recovery:
//
//	Keyed             the provider drops a second request with the same key
//	Checked           the provider can be asked whether it executed a request
//	Repeatable        a repetition changes nothing
//	AtMostOnce        never again
//	AcceptDuplicates  again, and each possible duplicate is reported
//
// A step belongs to a job, to a delivery under a lease, to a leased command or to a claimed row of
// package guard: its [pawl.Holder]. It is planned in the database, called, and recorded. The fence
// of a call is a number that grows with each call, and a verdict names the call that it is about. A
// late result of an earlier call is still accepted.
//
// If the process dies between the call and the record, the outcome is unknown, and the Recovery
// decides. If that cannot tell either, the step becomes unknown: it is not called again and its job
// waits. [Reconcile] asks the provider, or an operator settles it by a verdict
// (ops.StepRef.Settle).
//
// One case cannot be prevented. A process may freeze between the last check of the clock and the
// write to the socket, and send its request when it wakes. With Keyed the provider drops that
// request while it remembers the key. With Checked it is a second effect, which is only reported
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
// plan takes one connection and locks in this order: the row of the job, delivery, command or guard
// (Holder.Hold), then the step's row. If the step is unknown, step_end and step_settle lock its job
// first, too. No connection or lock is held during a call, a probe or a wait.
