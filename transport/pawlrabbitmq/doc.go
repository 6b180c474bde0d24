// Package pawlrabbitmq receives from and publishes to RabbitMQ by AMQP 0-9-1: quorum queues, version 3.10 and later.
//
// A [Source] consumes one queue on a connection of its own, and makes a new one when that is lost. Each channel that it opens is a session. A
// delivery belongs to its session: a delivery tag is unique only there, and RabbitMQ takes back what a session holds when it ends.
//
//	basic.deliver ─▶ prefetched ─▶ Receive ─▶ out ──── Ack, with a Receipt ──▶ basic.ack
//	                     ▲                    │ ▲
//	                     └── after the delay ─┘ └─ StillHeld: false once its session has ended
//	                          Release
//
//	session ends ─▶ all that it holds is delivered again, here or elsewhere, in its order; a late receipt sends nothing
//
// What is given back waits in memory and comes again to the same source. RabbitMQ does not hear of it, so no retry counts towards the queue's
// delivery limit. A source that stops gives back what it did not begin.
//
// RabbitMQ promises at-least-once: a message comes again after each lost connection. Package consumer absorbs duplicates by
// [pawl.Delivery.Key]; see [Config.Key] for where it comes from.
//
// A [Sink] publishes the events of an outbox to an exchange: mandatory, persistent, and confirmed by the broker.
//
// Neither makes a queue, an exchange or a binding. [Open] checks the queue and says what to change.
package pawlrabbitmq
