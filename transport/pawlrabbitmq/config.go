package pawlrabbitmq

import (
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/transport/internal/adapter"
)

const (
	defaultPrefetch = 250
	maxPrefetch     = 10_000
	defaultWait     = 5 * time.Second
	minWait         = 50 * time.Millisecond
	maxWait         = 30 * time.Second
	defaultHorizon  = 14 * 24 * time.Hour
	receiveBatch    = 64  // what a consumer asks for at once
	ackBatch        = 128 // receipts of one call
)

// Config shapes a [Source]. The zero value is fit for production.
type Config struct {
	// Prefetch is how many deliveries RabbitMQ may send that are not acknowledged yet (basic.qos). They wait in memory: those that handlers work on,
	// those that wait for one, and those that were given back. Too few: handlers wait for the network. Too many: more memory, and a process that
	// is killed counts as a delivery of all of them, towards the queue's delivery limit. Default 250, allowed 1 to 10,000.
	Prefetch int

	// Wait is how long one Receive may wait for the first message. A stop does not wait for it. Default 5 s, allowed 50 ms to 30 s.
	Wait time.Duration

	// Key finds the idempotency key of a message. Default: the header Idempotency-Key, else the property message-id, else source and id of a
	// CloudEvent; see [DefaultKey]. A message without a key is delivered with an empty [pawl.Delivery.Key]; nothing is guessed.
	Key KeyFrom

	// OrderingKey makes an ordering key of a message, such as [ByQueue], [ByRoutingKey] or [ByHeader]; "" means no order for this message. It needs a
	// queue with x-single-active-consumer, or Open refuses: otherwise RabbitMQ hands messages to several consumers at once. Default nil: no order
	// is claimed.
	OrderingKey func(d *amqp.Delivery) string

	// RedeliveryHorizon is how long after its first arrival a message may come again; a consumer remembers its key at least that long. RabbitMQ
	// sets no limit. What was not acknowledged is delivered again as soon as a consumer runs, so the horizon is the longest time in which none
	// does, and the longest time that a message waits in a dead letter queue before you move it back. Too short: such a message is processed
	// again, or refused as stale if it has a timestamp. Too long: more rows. Default 14 days, at least 1 minute; [pawl.Forever] is allowed.
	RedeliveryHorizon time.Duration

	// AllowClassic accepts a classic queue. It has no count of deliveries: [pawl.Delivery.Receives] is 1, or 2 for any redelivery, so a message
	// that kills its process is found only if SoloAfter is 2 or less. Default false: Open accepts quorum queues only.
	AllowClassic bool

	// Management is the address of the management API, such as https://user:password@host:15672. With it Open sees the queue as RabbitMQ runs it,
	// policies included. Default none: Open sees the arguments that the queue was declared with, and no policy.
	Management string

	// Hooks receive received, empty_receive, acknowledged, released, handle_lost, and error where the queue may drop messages unread or
	// cannot be seen; package consumer reports the failures to receive and to acknowledge. The zero value logs them to slog.Default, all but
	// handle_lost and error at debug.
	Hooks pawl.Hooks
}

// filled returns the config with defaults in place, or an error that names the field out of bounds.
func (c Config) filled() (Config, error) {
	const op = "rabbitmq.open"
	if c.Prefetch == 0 {
		c.Prefetch = defaultPrefetch
	}
	if c.Wait == 0 {
		c.Wait = defaultWait
	}
	if c.Key == nil {
		c.Key = DefaultKey()
	}
	if c.RedeliveryHorizon == 0 {
		c.RedeliveryHorizon = defaultHorizon
	}
	switch {
	case c.Prefetch < 1 || c.Prefetch > maxPrefetch:
		return c, adapter.BadArgument(op, "Prefetch is %d, allowed are 1 to 10000", c.Prefetch)
	case c.Wait < minWait || c.Wait > maxWait:
		return c, adapter.BadArgument(op, "Wait is %v, allowed are 50ms to 30s", c.Wait)
	case c.RedeliveryHorizon < time.Minute:
		return c, adapter.BadArgument(op, "RedeliveryHorizon is %v, allowed are 1m and more", c.RedeliveryHorizon)
	}
	if err := adapter.CheckKey(c.Key); err != nil {
		return c, adapter.BadArgument(op, "Key: %v", err)
	}
	return c, nil
}
