// Package job is durable work in PostgreSQL: enqueued in your transaction, claimed under a lease, finished under a
// fence.
//
//	                     claim: fence + 1, attempts + 1
//	Enqueue ──▶ pending ───────────────────────────────▶ processing ── finish ──▶ gone: effect committed
//	              ▲                                        │   │
//	              ├── fail, attempts left: back-off ───────┘   │
//	              ├── release: shutdown, outage; uncharged ────┤
//	              └── sweep: the worker died; crashes + 1 ─────┤
//	                                                           └── none left, or final ──▶ dead_letter
//
// The lease belongs to the worker process: one narrow row, renewed by heartbeat. The fence belongs to the job and grows
// at every claim; every accepted write carries the newest one, so a worker that slept past its lease cannot commit.
//
// A [Worker] runs the transactional form: hold the job (fence and row lock) first, your handler behind a savepoint, then
// finish, all in one transaction. What the handler wrote and the end of the job commit together or not at all.
package job
