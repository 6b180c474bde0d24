// Package delivery claims, stores, keeps, settles and purges a consumer's deliveries, and passes
// them through a sequence gate.
//
//	            Claim                    your handler                commit
//	delivery ─────────▶ row inserted ──────────────────▶ effect and row together
//	             │                            │
//	             │ row exists                 │ error: roll back to the savepoint
//	             ▼                            ▼
//	         duplicate                      Store: a durable job owns the delivery
//
// The inbox row exists if and only if the effect committed or a job owns the delivery. The job is
// written in the same transaction.
//
// A [Lane] keeps deliveries in the order of their claims. A [Sequence] keeps them in the order of
// the sender's numbers. Package inbox exports the part that users need.
package delivery
