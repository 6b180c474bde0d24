// Package consumer moves deliveries from a source to one effect each. Make a handler in one of four forms, give it to [New], and call Run:
//
//	c, err := consumer.New(pool, consumer.Config{Name: "orders", Source: source, Handler: consumer.HandleTx(placeOrder)})
//	err = c.Run(ctx)
//
//	func placeOrder(ctx context.Context, tx pgx.Tx, m consumer.Message[Order]) error
//
// The forms:
//
//	HandleTx      one delivery, in the transaction that records it
//	HandleManyTx  many deliveries, in one transaction
//	Handle        from the database, under a lease, with no transaction open: for minutes, and for calls to others
//	Trigger       the message only names a row that exists
//
// A delivery goes through these steps. Each has a file of its name, and a file like claim_stale.go
// belongs to the step that its name begins with. drain.go runs the goroutines that handle, and
// deliver.go calls the steps from identify to commit.
//
//	            drain.go                  deliver.go
//	source ──> receive ──> identify ──> claim ──> handle ──> commit ──> ack ──> source
//	                           │           │         │          │
//	                           │           │         │          └─ or a job that owns the delivery: stored.go
//	                           └───────────┴─────────┴─ a duplicate, or a dead letter: straight to commit
//
//	receive   a batch from the source; the source keeps it invisible to others from here on
//	identify  the intent, the lane, the number; what is invalid, suspected or stored first is decided here
//	claim     whether the source still lets us have it; then the inbox row, the first statement of the
//	          transaction, which shows a duplicate at once
//	handle    your code, behind a savepoint of the same transaction; how the transaction ends
//	commit    your rows and the inbox row together, or the job that takes the delivery over
//	ack       with a receipt, which only a commit, or a row already there, can yield; or back to the source
//	finish    the source, when nothing is acknowledged any more
//
// A step returns what it found to deliver.go and calls none before it. If the transaction is lost,
// or the reply to COMMIT is, deliver.go claims again and reads the answer.
//
// Beside the steps stand config.go, the forms of handlers in forms.go, stored.go for deliveries that
// are retried from the database, and retention.go.
//
// A crash at any step costs a redelivery or a retry, never a second effect. The broker is only a trigger: once a
// delivery has been stored, the row is the retry ledger, so retries and dead letters look alike whatever the broker.
package consumer
