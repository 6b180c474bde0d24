// Package pawlnats is a [pawl.Source] and a [pawl.Sink] on NATS JetStream, on nats.go and its package jetstream.
//
// A [Source] receives from a durable pull consumer that exists. A delivery is kept from the moment it is received until it is acknowledged
// or released, however long it waits in this process before it is looked at:
//
//	Receive ─▶ held ──────── Ack, with a Receipt ──▶ acknowledged
//	             │ ▲  └───── Release ──────────────▶ delivered again after the delay
//	             ▼ │
//	         extended at each third of the consumer's AckWait
//	             │
//	             └─ delivered again, or stream or consumer made anew ─▶ no longer held: it is absorbed as a duplicate
//
// JetStream answers no acknowledgement. One that is lost, in a connection that breaks or a server that crashes, costs a redelivery, and the
// database absorbs it by [pawl.Delivery.Key]. [Stats.Redelivered] counts them. See [Config.Key] for where that key comes from, which is the
// one choice you have to get right.
//
// JetStream's own window of duplicates (Nats-Msg-Id, 2 min by default) replaces nothing of that: it ends with time and sees only what is
// published. Within it, another body under a known id is dropped and confirmed.
//
// # Order
//
// A source claims an order only if [Config.OrderingKey] is set, and then the consumer must have MaxAckPending 1: JetStream hands out one message
// at a time, over all processes, and one that is given back before those behind it. For more at once, partition the subject, and make a
// consumer for each partition.
//
// # Connections
//
// The connection is yours: nothing here closes it. It must reconnect for ever (nats.MaxReconnects(-1)): by default nats.go gives up after two
// minutes, and for good. If the server stops answering while the connection looks alive, a source makes nats.go reconnect.
package pawlnats
