// Package job runs durable jobs in PostgreSQL. Use it for work that must happen after your
// transaction commits: enqueue a job in the transaction, and a [Worker] runs it, with retries,
// until it succeeds or becomes a dead letter. Define a kind of job once, enqueue values, and run a
// worker:
//
//	var book = job.Define("book", job.Defaults[receipt]{Queue: "ledger"})
//
//	_, err := book.Enqueue(ctx, tx, receipt{Order: "17", Cents: 1250}) // tx is your transaction, or a pool
//
//	worker, err := job.NewWorker(pool, job.Config{Handlers: []job.Handler{
//		book.HandleTx(func(ctx context.Context, tx pgx.Tx, t job.Task[receipt]) error {
//			_, err := tx.Exec(ctx, "insert into booking values ($1, $2)", t.Value.Order, t.Value.Cents)
//			return err
//		})}})
//	if err != nil {
//		return err
//	}
//	return worker.Run(ctx) // until ctx ends
//
// Start with [Define], [HandleTx] and [Config]. [Enqueue] and [EnqueueMany] take a [Request], for
// kinds that are not known when the program is built. A handler has one of these forms:
//
//	Handle        fn runs, then the job is finished; a crash in between runs fn again
//	HandleMany    Handle for many jobs in one call
//	HandleTx      the job ends and fn runs in one transaction: your rows commit with the job's end
//	HandleManyTx  HandleTx for many jobs at once: many small effects a second
//	HandleThenTx  a call without a transaction, then a transaction that stores its result
//
// [HandleSQL], [HandleManySQL] and [HandleThenSQL] are the forms for database/sql.
//
// # States
//
//	                 claim: fence + 1, attempts + 1
//	Enqueue ──▶ pending ────────────────────▶ processing ── finish ──▶ gone: effect committed
//	              ▲                             │   │   │
//	              ├── fail: attempts left ──────┘   │   ├── Cancel, or operator ──▶ cancelled
//	              ├── Snooze, shutdown, outage ─────┤   │
//	              └── sweep: process died ──────────┘   └── none left, or Final ──▶ dead_letter
//
// A retry waits for the back-off. Snooze, shutdown and outage are not charged as attempts. A sweep
// gives back the jobs of a process that died, and adds 1 to their crashes. After its first crash a
// job is a suspect: it starts alone, so that its next crash is surely its own.
//
// A dead letter keeps its payload and errors until an operator retries or discards it. If a handler
// returns [pawl.ErrOutcomeUnknown] from a step of package step, the job becomes unknown. It waits
// for an operator's verdict and is then pending again.
//
// # Leases, fences and lanes
//
// The lease belongs to the worker process: others take over its jobs when it has missed heartbeats
// for that time. It is one narrow row, renewed by heartbeats. On its presence connection, beside
// the pool, the worker also holds a session lock, which the server releases when the process dies.
// Then the jobs are taken over before the lease ends.
//
// The fence belongs to the job and grows at every claim. Each accepted write carries the newest
// fence, so a worker that stalled past its lease cannot commit.
//
// A lane is an ordered sequence of jobs: see [Request].Lane. Its head is the job that has the turn.
// The others have the status waiting. They run one at a time, in the order in which they were
// enqueued.
package job
