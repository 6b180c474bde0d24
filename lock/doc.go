// Package lock protects work inside your own transaction that has no row with a status. Use it if
// two processes must not do the same work at once, or if an attempt that stalled may still write.
// For a table with a status use package guard.
//
//	TryLock      takes a name until the transaction ends; other transactions are refused meanwhile
//	AcceptFence  refuses the write of an older attempt after the write of a newer one
//
// The smallest use:
//
//	locked, err := lock.TryLock(ctx, tx, "close day", "merchant 7, 2024-05-01")
//	if err != nil || !locked {
//		return err // not locked: another transaction does it
//	}
//	// write through tx, then commit
//
// A fence is a number that grows with each attempt, such as the Fence of a job.Job:
//
//	            AcceptFence(resource, 2)              your write            commit
//	attempt 2 ───────────────────────────▶ accepted ─────────────▶ write and fence together
//
//	            AcceptFence(resource, 1)
//	attempt 1 ───────────────────────────▶ pawl.ErrFenceLost: roll back
//
// Neither waits longer than 2 s. Neither replaces a constraint: [TryLock] does not remember that
// work was done, and [AcceptFence] does not distinguish two runs of one attempt.
package lock
