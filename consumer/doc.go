// Package consumer turns each delivery of a source into one effect. Make a handler in one of four
// forms, pass it to [New], and call Run:
//
//	c, err := consumer.New(pool, consumer.Config{
//		Name: "orders", Source: source, Handler: consumer.HandleTx(placeOrder)})
//	err = c.Run(ctx)
//
//	func placeOrder(ctx context.Context, tx pgx.Tx, m consumer.Message[Order]) error
//
// The forms:
//
//	HandleTx      one delivery, in the transaction that records it
//	HandleManyTx  many deliveries, in one transaction
//	Handle        from the database, under a lease, with no transaction open:
//	              for work that takes minutes or calls other systems
//	Trigger       the message only names a row that exists
//
// A delivery goes through these steps. Each step has a file of its name. A file such as
// claim_stale.go belongs to the step that its name begins with. drain.go runs the handling
// goroutines, and deliver.go calls the steps from identify to commit.
//
//	            drain.go                  deliver.go
//	source ──> receive ──> identify ──> claim ──> handle ──> commit ──> ack ──> source
//	                           │           │         │          │
//	                           │           │         │          └─ or a job: stored.go
//	                           └───────────┴─────────┴─ duplicate or dead letter: to commit
//
//	receive   fetches a batch; from here on the source hides it from other receivers
//	identify  finds the intent, the lane and the sequence number; decides here whether the
//	          delivery is invalid, suspected, or stored first
//	claim     asks the source whether the delivery is still ours, then inserts the inbox row as
//	          the first statement of the transaction, which shows a duplicate at once
//	handle    calls your code behind a savepoint of the same transaction, and decides how the
//	          transaction ends
//	commit    commits your rows and the inbox row together, or the job that takes over
//	ack       acknowledges with a receipt, which only a commit or an existing row can yield;
//	          or releases the delivery to the source
//	finish    ends the source after the last acknowledgement
//
// A step returns its result to deliver.go and calls no earlier step. If the transaction or the
// reply to COMMIT is lost, deliver.go claims again and reads the outcome.
//
// Outside the steps are config.go, the forms of handlers in forms.go, stored.go for deliveries that
// are retried from the database, and retention.go.
//
// A crash at any step costs a redelivery or a retry, never a second effect. A stored delivery
// counts its retries in its row, so retries and dead letters look alike with every broker.
package consumer
