// Package pawl is the vocabulary of Pawl: at-least-once in, exactly one effect out, on plain PostgreSQL.
//
// One promise. The same intent, with the same payload, in the same scope, takes effect once, and everyone who
// asks again gets the same answer.
//
//	receive  →  claim  →  handle  →  commit  →  ack
//	   │          │         │          │         │
//	a batch    inbox     your rows   effect    with a
//	from the   row, in   in the      + inbox   Receipt,
//	source     your tx   same tx     together  or never
//
// A crash at any arrow costs a retry, never a second effect.
//
// This package holds words only: [Intent], [Fingerprint], [Delivery], [Receipt], [Source], [Sink], [Error], [Event].
// It contains no SQL. The rows live in packages inbox and job, the motion in package consumer; a consumer starts at
// [github.com/pawl-go/pawl/consumer].
package pawl
