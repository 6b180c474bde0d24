// Package pawlrabbitmq receives from and publishes to RabbitMQ by AMQP 0-9-1: quorum queues,
// version 3.10 and later. Use [Open] for the source of a consumer, and [OpenSink] to publish the
// events of an outbox:
//
//	source, err := pawlrabbitmq.Open(ctx, pawlrabbitmq.URL(url), "orders", pawlrabbitmq.Config{})
//	if err != nil {
//		return err
//	}
//	c, err := consumer.New(pool, consumer.Config{
//		Name: "orders", Source: source, Handler: consumer.HandleTx(placeOrder)}) // then c.Run(ctx)
//
// A [Source] consumes one queue on its own connection, and reconnects when that is lost. Each
// channel that it opens is a session, and a delivery belongs to its session. A delivery tag is
// unique only there, and RabbitMQ requeues a session's deliveries when it ends.
//
//	basic.deliver ─▶ prefetched ─▶ Receive ─▶ out ──── Ack, with a Receipt ──▶ basic.ack
//	                     ▲                    │ ▲
//	                     └── after the delay ─┘ └─ StillHeld: false once its session has ended
//	                          Release
//
//	session ends ─▶ RabbitMQ redelivers all that it held, in order; a late receipt sends nothing
//
// A released delivery waits in memory and comes again to the same source. RabbitMQ is not informed,
// so no retry counts towards its delivery limit. A stopping source requeues what was not started.
//
// RabbitMQ is at-least-once: a message comes again after each lost connection. Package consumer
// absorbs duplicates by [pawl.Delivery.Key]: it finds the key and acknowledges without calling your
// handler. See [Config.Key] for its origin.
//
// A [Sink] publishes an outbox's events to an exchange: mandatory, persistent and confirmed.
//
// Neither declares queues, exchanges or bindings. [Open] checks the queue and says what to change.
package pawlrabbitmq
