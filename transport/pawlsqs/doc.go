// Package pawlsqs receives from and sends to Amazon SQS, standard and FIFO queues, on
// aws-sdk-go-v2. Use [Open] for the source of a consumer, [OpenSender] to send messages that carry
// their key, and [OpenSink] to publish the events of an outbox:
//
//	client := sqs.NewFromConfig(cfg) // of aws-sdk-go-v2
//	source, err := pawlsqs.Open(ctx, client, "orders", pawlsqs.Config{})
//	if err != nil {
//		return err
//	}
//	c, err := consumer.New(pool, consumer.Config{
//		Name: "orders", Source: source, Handler: consumer.HandleTx(placeOrder)}) // then c.Run(ctx)
//
// Start with [Config].Key, which finds a message's idempotency key: the sender's name for the thing
// that must happen once. In a Lambda function use [OpenLambda]. Package sqstest simulates SQS in
// tests.
//
// A delivery is kept invisible to other receivers from its receive until it is acknowledged or
// released, including the time it waits in this process:
//
//	Receive ─▶ held ──────── Ack, with a Receipt ──▶ deleted
//	             │ ▲  └───── Release ──────────────▶ visible again after the delay
//	             ▼ │
//	         extended at each third of Visibility, in batches of ten
//	             │
//	             └─ handle expired, or twelve hours over ─▶ it returns, and is absorbed
//
// SQS delivers at least once. A second copy may arrive while the first is being handled, a delete
// answered with OK may be lost, and a receipt handle may expire. This package only counts those
// cases. The database absorbs duplicates by [pawl.Delivery.Key]: package consumer finds the key and
// acknowledges without calling your handler. Choose that key with care; see
// [Config.Key].
//
// SQS hands out several messages of a FIFO message group at once, and no more while one of them is
// in flight. Package consumer handles a group in order and different groups side by side; see
// [Source.Receive].
//
// The queue's own visibility timeout does not matter, because each receive sends
// [Config.Visibility]. The queue's maxReceiveCount does. SQS counts receives, not attempts of a
// handler, so a crash, a lost response, a drain and a conflict all count. Set it to 10 or more,
// well above the number of crashes you expect.
//
// A [Source] uses the IAM actions sqs:GetQueueUrl, sqs:GetQueueAttributes, sqs:ReceiveMessage,
// sqs:DeleteMessage and sqs:ChangeMessageVisibility. A [Sender] and a [Sink] use sqs:SendMessage
// and the first two.
package pawlsqs
