// Package job runs durable jobs in PostgreSQL. A job is enqueued in your transaction, claimed under
// a lease and finished under a fence.
//
//	                 claim: fence + 1, attempts + 1
//	Enqueue ──▶ pending ────────────────────▶ processing ── finish ──▶ gone: effect committed
//	              ▲                             │   │   │
//	              ├── fail: attempts left ──────┘   │   ├── Cancel, or operator ──▶ cancelled
//	              ├── Snooze, shutdown, outage ─────┤   │
//	              └── sweep: process died ──────────┘   └── none left, or Final ──▶ dead_letter
//
// A retry waits for the back-off. Snooze, shutdown and outage are not charged as attempts. A sweep
// adds 1 to the job's crashes.
//
// If a handler returns [pawl.ErrOutcomeUnknown] from a step of package step, the job becomes
// unknown. It waits for an operator's verdict and is then pending again.
//
// Enqueue with [Enqueue] or [EnqueueMany], in your transaction or on a pool. Run handlers with a
// [Worker]. A handler has one of these forms:
//
//	Handle        fn runs, then the job is finished; a crash in between runs fn again
//	HandleMany    Handle for many jobs in one call
//	HandleTx      the job ends and fn runs in one transaction: your rows commit with the job's end
//	HandleManyTx  HandleTx for many jobs at once: many small effects a second
//	HandleThenTx  a call without a transaction, then a transaction that stores its result
//
// [HandleSQL], [HandleManySQL] and [HandleThenSQL] are the forms for database/sql.
//
// The lease belongs to the worker process. It is one narrow row, renewed by heartbeats, and a
// session lock that the server releases when the process dies. The fence belongs to the job and
// grows at every claim. Each accepted write carries the newest fence, so a worker that stalled past
// its lease cannot commit.
package job
