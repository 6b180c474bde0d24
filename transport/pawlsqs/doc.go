// Package pawlsqs is a [pawl.Source] on Amazon SQS, standard and FIFO queues, on aws-sdk-go-v2.
//
// A delivery is kept invisible to other receivers from the moment it is received until it is acknowledged or
// released, however long it waits in this process before it is looked at:
//
//	Receive ─▶ held ──────── Ack, with a Receipt ──▶ deleted
//	             │ ▲  └───── Release ──────────────▶ visible again after the delay
//	             ▼ │
//	         extended at each third of Visibility, in batches of ten
//	             │
//	             └─ handle dead, or twelve hours over ─▶ no longer held: it returns, and is absorbed as a duplicate
//
// SQS promises at-least-once and nothing more: a message may come twice while the first is being handled, a delete
// answered with OK may be lost, a handle may expire. None of that is handled here beyond counting it. The database
// absorbs duplicates by [pawl.Delivery.Key]; see [Config.Key] for where that key comes from, which is the one choice
// you have to get right.
//
// Of a FIFO queue's message group SQS hands out several at once, and no more while one of them is held. Package consumer takes them in
// their order, groups side by side; see [Source.Receive].
//
// The queue's own visibility timeout does not matter: each receive sends [Config.Visibility]. Its maxReceiveCount does:
// SQS counts receives, not attempts of a handler: a process that dies, an answer that is lost, a drain and a conflict
// all count. Set it to 10 or more, well above the crashes you expect.
//
// The IAM actions used are sqs:GetQueueUrl, sqs:GetQueueAttributes, sqs:ReceiveMessage, sqs:DeleteMessage and
// sqs:ChangeMessageVisibility; the [Sender] uses sqs:SendMessage and the first two.
package pawlsqs
