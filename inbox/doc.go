// Package inbox remembers which deliveries each consumer has seen.
//
//	            Claim                    your handler                commit
//	delivery ─────────▶ row inserted ──────────────────▶ effect and row together
//	             │                            │
//	             │ row exists                 │ error: roll back to the savepoint
//	             ▼                            ▼
//	         Duplicate                      Land: a durable job owns the delivery
//
// The row exists if and only if the effect committed, or a job owns the delivery (written in the same transaction).
// The rows are insert-only and narrow; purging them is a matter of retention, never of a lease.
//
// A [Lane] keeps deliveries in the order in which they are claimed, a [Turn] at a gate in that of their senders' numbers. [Retention] and
// [Purge] say what is forgotten.
package inbox
