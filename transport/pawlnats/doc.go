// Package pawlnats receives from and publishes to NATS JetStream, using nats.go. Use [Open] for the
// source of a consumer, [OpenPartitions] for order over several consumers, and [OpenSink] to
// publish the events of an outbox:
//
//	nc, err := nats.Connect(url, nats.MaxReconnects(-1))
//	if err != nil {
//		return err
//	}
//	js, err := jetstream.New(nc)
//	if err != nil {
//		return err
//	}
//	source, err := pawlnats.Open(ctx, js, "ORDERS", "billing", pawlnats.Config{}) // stream, consumer
//	if err != nil {
//		return err
//	}
//	c, err := consumer.New(pool, consumer.Config{
//		Name: "orders", Source: source, Handler: consumer.HandleTx(placeOrder)}) // then c.Run(ctx)
//
// A [Source] receives from an existing durable pull consumer. It holds and extends each delivery
// until it is acknowledged or released, however long it waits in memory:
//
//	Receive ─▶ held ──────── Ack, with a Receipt ──▶ acknowledged
//	             │ ▲  └───── Release ──────────────▶ delivered again after the delay
//	             ▼ │
//	         extended at each third of the consumer's AckWait
//	             │
//	             └─ delivered again, or stream or consumer recreated ─▶ no longer held,
//	                                                  absorbed as a duplicate if it comes again
//
// JetStream does not confirm acknowledgements. If a broken connection or a server crash loses one,
// the message is redelivered, and the database absorbs it by [pawl.Delivery.Key]: package consumer
// finds the key and acknowledges without calling your handler. [Stats.Redelivered] counts
// redeliveries. Choose the source of that key with [Config.Key]; it is the one choice you have to
// get right.
//
// JetStream's own duplicate window (Nats-Msg-Id, 2 min by default) does not replace that key: it
// ends and covers only publishing. Within it, another body under a known id is confirmed and
// dropped.
//
// # Order
//
// A source promises order only if [Config.OrderingKey] is set. The consumer must then have
// MaxAckPending 1. JetStream hands out one message at a time over all processes, and a released
// message before later ones. For more concurrency, partition the subject and create one consumer
// per partition; see [Partitions].
//
// # Connections
//
// You own the connection: this package never closes it. It must reconnect forever
// (nats.MaxReconnects(-1)), because by default nats.go gives up for good after two minutes. If the
// server stops answering while the connection looks alive, a source makes nats.go reconnect.
package pawlnats
