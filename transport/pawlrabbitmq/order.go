package pawlrabbitmq

import (
	"encoding/hex"
	"errors"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/pawl-go/pawl/transport/internal/adapter"
)

// ByQueue makes the whole queue one order: one message at a time takes effect.
func ByQueue(*amqp.Delivery) string { return "queue" }

// ByRoutingKey orders messages with the same routing key. Different ones go side by side.
func ByRoutingKey(d *amqp.Delivery) string { return orderOf(d.RoutingKey) }

// ByHeader orders messages by a header, such as [GroupHeader], which a [Sink] sets. A message without it has no order.
func ByHeader(name string) func(d *amqp.Delivery) string {
	return func(d *amqp.Delivery) string {
		if octets, are := d.Headers[name].([]byte); are {
			return orderOf(string(octets))
		}
		return orderOf(textOf(d.Headers[name]))
	}
}

// orderOf keeps text as it is and writes octets in hex: an ordering key must be text.
func orderOf(value string) string {
	if adapter.IsText(value) {
		return value
	}
	return "hex:" + hex.EncodeToString([]byte(value))
}

var errNoOrder = errors.New("the queue hands messages to several consumers at once, so no order can be kept")
