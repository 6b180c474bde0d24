// Package command lets a caller ask for something once: whoever asks again with the same key gets the same answer, byte for
// byte, and whoever uses the key for something else is told so.
//
//	               claim
//	                 │
//	            processing ─────── lease over ──┬── Repeatable: runs again, under a new fence
//	             │   │   │                      └── else: unknown ── the attempt's own end, or Settle
//	       error │   │   │ pawl.Final
//	failed_retryable │  failed_final ── asked again: the same failure, P4030
//	   asked again:  │
//	   runs again    succeeded ──────── asked again: the same answer, Replayed
//
// [Once] is the form to use: your rows and the answer commit in one transaction, or neither does. The figure is that of [Leased]: a
// command of Once is written when it ends.
//
//	result, err := command.Once(ctx, pool, intent, command.Options{}, func(ctx context.Context, tx pgx.Tx) (Order, error) {
//		return insertOrder(ctx, tx, request)
//	})
//
// [Leased] is for work that must call outside, between a claim and an end that are transactions of their own.
//
// # Errors
//
// [pawl.ErrKeyReused]: the key came before with another payload. [pawl.ErrInProgress]: somebody else is at it, [RetryAfter]
// says when to ask again. [pawl.ErrFailedFinal]: it failed for good, now or earlier; [FailureOf] has the stored failure.
// [pawl.ErrOutcomeUnknown]: an attempt may have taken effect and did not say; it is not run again.
// [pawl.ErrFenceLost]: this attempt no longer holds the command; drop it. [pawl.ErrCommitUnknown]:
// the database could not be asked what became of a COMMIT; ask again with the same key. Anything else is the handler's own error, recorded as
// failed_retryable, or the database's; the same key may be tried again. What the handler was told of other keys and leases, by a job
// that it enqueued for instance, stays in the chain, below an outermost [pawl.Error] whose Op is command.handle.
package command
