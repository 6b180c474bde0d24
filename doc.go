// Package pawl is the vocabulary of Pawl: at-least-once in, exactly one effect out, on PostgreSQL.
//
// An intent with the same payload in the same scope takes effect once. Repeats get the same answer.
//
//	receive  →  claim  →  handle  →  commit  →  ack
//	   │          │         │          │         │
//	a batch    inbox     your rows   effect    with a
//	from the   row, in   in the      + inbox   Receipt,
//	source     your tx   same tx     together  or never
//
// A crash at any arrow costs a retry, never a second effect.
//
// This package holds shared types only: [Intent], [Fingerprint], [Delivery], [Receipt], [Source],
// [Sink], [Error], [Event]. It contains no SQL. Packages inbox and job own the rows, and package
// consumer runs the loop. Start at [github.com/pawl-go/pawl/consumer].
package pawl
