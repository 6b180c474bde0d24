// Package lock protects work inside your own transaction that no row with a status stands for.
//
//	TryLock      one transaction at a time has a name; it is free again when that transaction ends
//	AcceptFence  a write of an older attempt is refused after one of a newer attempt
//
//	            AcceptFence(resource, 2)              your write            commit
//	attempt 2 ───────────────────────────▶ accepted ─────────────▶ write and fence together
//
//	            AcceptFence(resource, 1)
//	attempt 1 ───────────────────────────▶ pawl.ErrFenceLost: roll back
//
// Neither waits longer than 2 s. Neither replaces a constraint: [TryLock] does not remember that work was done, and [AcceptFence] does not
// distinguish two runs of one attempt. For a table with a status use package guard.
package lock
