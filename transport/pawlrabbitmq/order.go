package pawlrabbitmq

import (
	"encoding/hex"
	"errors"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/pawl-go/pawl/transport/internal/adapter"
)

// ByQueue orders the whole queue: one message at a time takes effect.
func ByQueue(*amqp.Delivery) string { return "queue" }

// ByRoutingKey orders messages with the same routing key. Others run concurrently.
func ByRoutingKey(d *amqp.Delivery) string { return orderOf(d.RoutingKey) }

// ByHeader orders messages by a header, such as a [Sink]'s [GroupHeader]. Without it: no order.
func ByHeader(name string) func(d *amqp.Delivery) string {
	return func(d *amqp.Delivery) string {
		if octets, are := d.Headers[name].([]byte); are {
			return orderOf(string(octets))
		}
		return orderOf(textOf(d.Headers[name]))
	}
}

// orderOf writes octets that are not text in hex, because an ordering key must be text.
func orderOf(value string) string {
	if adapter.IsText(value) {
		return value
	}
	return "hex:" + hex.EncodeToString([]byte(value))
}

var errNoOrder = errors.New("the queue delivers to several consumers at once, so no order can be kept")
