// Package consumer receives messages from a broker or from webhooks, and calls your handler so that
// each message takes effect once, however often it arrives. Use it for messages that change rows in
// PostgreSQL. Make a handler in one of four forms, pass it to [New], and call Run:
//
//	c, err := consumer.New(pool, consumer.Config{
//		Name: "orders", Source: source, Handler: consumer.HandleTx(placeOrder)})
//	if err != nil {
//		return err
//	}
//	return c.Run(ctx) // until ctx ends
//
//	func placeOrder(ctx context.Context, tx pgx.Tx, m consumer.Message[Order]) error {
//		_, err := tx.Exec(ctx, "insert into orders values ($1, $2)", m.Value.ID, m.Value.Cents)
//		return err
//	}
//
// Start with [HandleTx], [Config] and [Policy]. The source is a [pawl.Source], such as a queue
// opened with pawlsqs.Open, or a webhook.Receiver. Package service runs a consumer beside other
// parts of a program, and pawltest.Consume runs one in a test.
//
// The forms:
//
//	HandleTx      one delivery, in the transaction that records it
//	HandleManyTx  many deliveries, in one transaction
//	Handle        from the database, under a lease, with no transaction open:
//	              for work that takes minutes or calls other systems
//	Trigger       the message only names a row that exists
//
// [HandleSQL] and [HandleManySQL] are the forms for database/sql.
//
// # Terms
//
// A delivery is one arrival of a message. Its intent is the thing that must happen once: the name
// of the consumer and the delivery's key identify it, and table pawl.inbox has a row for each.
// (With a Trigger, your own row replaces it.) If a delivery fails, by default the consumer stores
// it as a job (package job) and acknowledges the message. The job is retried from the database.
// When its tries are used up it is a dead letter: it keeps the payload and waits for an operator.
//
// Deliveries with one ordering key form a lane and run one at a time, in order. Under a lease, a
// process owns a stored delivery until it has missed heartbeats for that time. A fence is a number
// that grows each time a delivery is claimed, so that the write of an older attempt can be refused.
// A suspect is a delivery that may have killed its process: see [Policy].SoloAfter.
//
// # How a delivery is handled
//
//	source ──> receive ──> identify ──> claim ──> handle ──> commit ──> ack ──> source
//	                           │           │         │          │
//	                           │           │         │          └─ or a job that takes over
//	                           └───────────┴─────────┴─ duplicate or dead letter: to commit
//
//	receive   fetches a batch; from here on the source hides it from other receivers. With a
//	          Config.Filter it acknowledges duplicates that a mark proves
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
// If the transaction or the reply to COMMIT is lost, the consumer claims again and reads the
// outcome. A crash at any step costs a redelivery or a retry, never a second effect. A stored
// delivery counts its retries in its row, so retries and dead letters look alike with every broker.
package consumer

// For maintainers: each step has a file of its name. A file such as claim_stale.go belongs to the
// step that its name begins with. drain.go runs the handling goroutines, and deliver.go calls the
// steps from identify to commit. A step returns its result to deliver.go and calls no earlier step.
// If the transaction or the reply to COMMIT is lost, deliver.go claims again and reads the outcome.
//
// Outside the steps are config.go, the forms of handlers in forms.go, stored.go for deliveries that
// are retried from the database, and retention.go.
