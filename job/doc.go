// Package job is durable work in PostgreSQL: enqueued in your transaction, claimed under a lease, finished under a
// fence.
//
//	                     claim: fence + 1, attempts + 1
//	Enqueue ──▶ pending ───────────────────────────────▶ processing ── finish ──▶ gone: effect committed
//	              ▲                                        │   │   │
//	              ├── fail, attempts left: back-off ───────┘   │   ├── Cancel, or an operator's cancel ──▶ cancelled
//	              ├── Snooze, shutdown, outage: uncharged ─────┤   │
//	              └── sweep: the worker died; crashes + 1 ─────┘   └── none left, or Final ──────────────▶ dead_letter
//
// A job that returns [pawl.ErrOutcomeUnknown] of a step in package step is unknown: it waits for a verdict, and is pending then.
//
// Enqueue with [Enqueue] or [EnqueueMany], in your transaction or alone. Work with a [Worker], which runs handlers of
// three forms:
//
//	Handle       fn runs, then the job is finished    calls to others, long work; a crash in between runs fn again
//	HandleTx     hold, fn, finish: one transaction    rows of yours in this database: once, with the end of the job
//	HandleManyTx  the same for many jobs at once       many small effects a second
//
// The lease belongs to the worker process: one narrow row, renewed by heartbeat, and a session lock whose end tells that
// the process has died. The fence belongs to the job and grows at every claim; every accepted write carries the newest
// one, so a worker that slept past its lease cannot commit.
package job
