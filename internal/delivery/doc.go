// Package delivery holds what a consumer does with the rows of the inbox: claim, store, keep, settle, pass a sequence gate and forget.
//
//	            Claim                    your handler                commit
//	delivery ─────────▶ row inserted ──────────────────▶ effect and row together
//	             │                            │
//	             │ row exists                 │ error: roll back to the savepoint
//	             ▼                            ▼
//	         duplicate                      Store: a durable job owns the delivery
//
// The row exists if and only if the effect committed, or a job owns the delivery (written in the same transaction).
//
// A [Lane] keeps deliveries in the order in which they are claimed, a [Sequence] at a gate in that of their senders' numbers. Package inbox shows
// users the part that they need.
package delivery
