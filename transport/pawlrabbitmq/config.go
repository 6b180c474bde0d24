package pawlrabbitmq

import (
	"cmp"
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
	receiveBatch    = 64  // of a consumer
	ackBatch        = 128 // receipts in one call
)

// Config configures a [Source]. The zero value is fit for production.
type Config struct {
	// Prefetch is the most unacknowledged deliveries that RabbitMQ sends (basic.qos). They are in
	// memory: with a handler, waiting for one, or released. If it is too low, handlers wait for the
	// network. If it is too high, it takes more memory, and a killed process counts as a delivery
	// of all of them towards the queue's delivery limit. Default 250, allowed 1 to 10,000.
	Prefetch int

	// Wait is how long one Receive may wait. A shutdown does not wait. Default 5 s, 50 ms to 30 s.
	Wait time.Duration

	// Key finds the idempotency key of a message. Default [DefaultKey]. It may find none.
	Key KeyFrom

	// OrderingKey returns the ordering key of a message, as [ByQueue], [ByRoutingKey] or [ByHeader]
	// do; "" means no order for this message. It requires x-single-active-consumer, or Open fails:
	// RabbitMQ otherwise delivers to several consumers at once. Default nil: no order.
	OrderingKey func(d *amqp.Delivery) string

	// RedeliveryHorizon is how long after its first delivery a message may come again. A consumer
	// remembers its key at least that long. RabbitMQ sets no limit: it redelivers unacknowledged
	// messages as soon as a consumer runs. So the horizon is the longest time without a consumer,
	// and the longest time before you move a message back from a dead letter queue. If it is too
	// short, such a message is processed again, or refused as stale if it has a timestamp. If it is
	// too long, there are more rows. Default 14 days, at least 1 minute; [pawl.Forever] is allowed.
	RedeliveryHorizon time.Duration

	// AllowClassic accepts a classic queue, which does not count deliveries:
	// [pawl.Delivery.Receives] is 1, or 2 for any redelivery. So a message that kills its process
	// is found only if SoloAfter is 2 or less. Default false: Open accepts quorum queues only.
	AllowClassic bool

	// Management is the address of the management API, such as https://user:password@host:15672.
	// With it Open sees the queue's policies. Default none: Open sees the queue's arguments only.
	Management string

	// Hooks receive received, empty_receive, acknowledged, released and handle_lost, and error if
	// the queue may drop messages unread or cannot be inspected. Package consumer reports failures
	// of Receive and Ack. The zero value logs to slog.Default, all but handle_lost and error at
	// debug.
	Hooks pawl.Hooks
}

func (c Config) filled() (Config, error) {
	const op = "rabbitmq.open"
	c.Prefetch, c.Wait = cmp.Or(c.Prefetch, defaultPrefetch), cmp.Or(c.Wait, defaultWait)
	c.RedeliveryHorizon = cmp.Or(c.RedeliveryHorizon, defaultHorizon)
	if c.Key == nil {
		c.Key = DefaultKey()
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
