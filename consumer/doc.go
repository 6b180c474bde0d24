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
// A delivery goes through the numbered files in their order, and deliver.go is the line that calls them:
//
//	1_receive   a batch from the source; the source keeps it invisible to others from here on
//	2_identify  the intent, the lane, the number; what is unfit, suspected or stored first is decided here
//	3_held      whether the source still lets us have it, asked as late as possible
//	3_claim     the inbox row, first statement of the transaction; duplicates are answered at once
//	4_handle    your code, behind a savepoint of the same transaction; how the transaction ends
//	5_commit    your rows and the inbox row together, or the job that takes the delivery over
//	6_ack       with a receipt, which only a commit (or a row already there) can yield, or back to the source
//	7_finish    the source, when nothing is acknowledged any more
//
// A step returns what it found to the line and calls none before it. If the transaction is lost, or the reply to COMMIT is, the line
// claims again and reads the answer.
//
// A crash at any step costs a redelivery or a retry, never a second effect. The broker is only a trigger: once a
// delivery has been stored, the row is the retry ledger, so retries and dead letters look alike whatever the broker.
package consumer
