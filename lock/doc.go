// Package lock protects work inside your own transaction that has no row with a status.
//
//	TryLock      takes a name until the transaction ends; other transactions are refused meanwhile
//	AcceptFence  refuses the write of an older attempt after the write of a newer one
//
//	            AcceptFence(resource, 2)              your write            commit
//	attempt 2 ───────────────────────────▶ accepted ─────────────▶ write and fence together
//
//	            AcceptFence(resource, 1)
//	attempt 1 ───────────────────────────▶ pawl.ErrFenceLost: roll back
//
// Neither waits longer than 2 s. Neither replaces a constraint: [TryLock] does not remember that
// work was done, and [AcceptFence] does not distinguish two runs of one attempt. For a table with a
// status use package guard.
package lock
