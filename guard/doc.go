// Package guard keeps work inside your own transaction from running twice at once, or from a stale attempt.
//
//	            AcceptFence(resource, 2)              your write            commit
//	attempt 2 ───────────────────────────▶ accepted ─────────────▶ effect and fence together
//
//	            AcceptFence(resource, 1)
//	attempt 1 ───────────────────────────▶ pawl.ErrFenceLost: roll back
//
// [Rows] guards work that a row of yours stands for, with a status: one UPDATE from pending to completed in the transaction of the
// work ([Rows.Once]), or claim, work, commit ([Rows.Claim]), and a [Sweeper] for rows whose message is gone. See
// docs/guides/choose.md.
//
// [TryLock] and [AcceptFence] are for what no status stands for. Both end with the transaction that asked. Neither waits longer than
// 2 s, and neither stands in for a constraint: [TryLock] does not remember that work was done, [AcceptFence] does not tell two runs of
// one attempt apart.
package guard
