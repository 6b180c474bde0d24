// Package command runs a request once for each idempotency key. A retry with the same key gets the
// stored answer, byte for byte. Use it for requests that do not come over HTTP; for those that do,
// package httpkey calls it. Use [Once] by default: your rows and the answer commit in one
// transaction.
//
//	intent := pawl.Intent{Scope: "orders/" + customer, Key: key, Fingerprint: pawl.FingerprintOf(body)}
//	result, err := command.Once(ctx, pool, intent, command.Options{},
//		func(ctx context.Context, tx pgx.Tx) (Order, error) {
//			return insertOrder(ctx, tx, request)
//		})
//
// An intent is the thing that must happen once. Its scope separates key spaces, its key is the same
// at every retry, and its fingerprint is a hash of the payload. If the payload differs, the retry
// fails with [pawl.ErrKeyReused].
//
// Use [Leased] for a handler that calls other systems. Its claim and its end are separate
// transactions, and none is open while the handler runs. A claim holds for the lease: until
// heartbeats have been missing for that time. Each claim of the key has a larger fence, a number,
// and the end of an attempt with an older one is refused. [Begin] is Leased for code that is not
// one function.
//
//	               claim
//	                 │
//	            processing ─────── lease expired ──┬── Repeatable: runs again, under a new fence
//	             │   │   │                         └── else: unknown ── its late result, or Settle
//	       error │   │   │ pawl.Final
//	failed_retryable │  failed_final ── retry: the same failure, P4030
//	   retry:        │
//	   runs again    succeeded ──────── retry: the same answer, Replayed
//
// The figure shows [Leased]; [Once] writes the command's row only at the end of its transaction.
// Settle is ops.CommandRef.Settle: an operator says whether the unknown attempt took effect.
//
// # Errors
//
//   - [pawl.ErrKeyReused]: the key was used before with another payload.
//   - [pawl.ErrInProgress]: another call holds the key. [RetryAfter] says when to retry.
//   - [pawl.ErrFailedFinal]: the command failed for good, now or earlier. See [FailureOf].
//   - [pawl.ErrOutcomeUnknown]: an attempt may have taken effect. It does not run again.
//   - [pawl.ErrFenceLost]: this attempt no longer holds the command. Drop it.
//   - [pawl.ErrCommitUnknown]: COMMIT got no reply and its outcome could not be read. Retry.
//   - any other error: the handler's own, recorded as failed_retryable, or the database's. Retry.
//
// If the handler gets such an error for another key or lease, the chain has it below an outermost
// [pawl.Error] whose Op is command.handle.
package command

// For maintainers: the files by step of a call.
//
//	             Once                                Leased
//	claim        call.go, habit.go, database.go      lease.go
//	handle       call.go                             attempt.go, heartbeat.go
//	end          call.go; failure: mark.go           end.go; failure: mark.go
//	wait         wait.go, for another call that holds the key
//	types        answer.go, failure.go
//
// Acquire in this order: Attempt.mu, a connection, the key's advisory lock, the command's row,
// your rows. A call holds at most one connection, and none while it waits or a leased handler runs.
// The heartbeat takes another connection for each renewal, and never Attempt.mu. No statement runs
// under flights.mu.
