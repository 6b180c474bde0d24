package pawlrabbitmq

import (
	"crypto/sha256"
	"encoding/hex"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/pawl-go/pawl/transport/internal/adapter"
)

// DefaultKeyHeader is the header that carries the key, looked at first.
const DefaultKeyHeader = "Idempotency-Key"

// KeyFrom finds the idempotency key of a message: the sender's name for the intent, the same for every resend.
// It answers "" for a message that carries none.
type KeyFrom interface {
	KeyOf(d *amqp.Delivery) string
}

// KeyFunc makes a [KeyFrom] of a function, for keys that are somewhere else.
type KeyFunc func(d *amqp.Delivery) string

// KeyOf calls f.
func (f KeyFunc) KeyOf(d *amqp.Delivery) string { return f(d) }

// DefaultKey takes the header Idempotency-Key, else the property message-id, else the source and the id of a CloudEvent.
func DefaultKey() KeyFrom {
	return KeyFirst(KeyHeader(DefaultKeyHeader), KeyMessageID(), KeyCloudEvent())
}

// KeyHeader takes the key from the header of that name, in that case: a text, or a whole number as it is written in decimal.
func KeyHeader(name string) KeyFrom {
	return adapter.Named[*amqp.Delivery]{By: "KeyHeader", Name: name, Of: func(d *amqp.Delivery, name string) string { return textOf(d.Headers[name]) }}
}

// KeyMessageID takes the property message-id. RabbitMQ does not make one: it is the producer's, and protects as far as the producer gives
// a resend the same one.
func KeyMessageID() KeyFrom { return KeyFunc(func(d *amqp.Delivery) string { return d.MessageId }) }

// KeyCloudEvent takes the source and the id of a CloudEvent, which only together are unique, from the headers cloudEvents_source and
// cloudEvents_id or cloudEvents:source and cloudEvents:id, joined as [pawl.Key] does; if the two are longer than a key may be, it is their SHA-256.
func KeyCloudEvent() KeyFrom {
	return KeyFunc(func(d *amqp.Delivery) string {
		header := func(name string) string { return textOf(d.Headers[name]) }
		if key := adapter.EventKey(header, adapter.EventAMQP); key != "" {
			return key
		}
		return adapter.EventKey(header, "cloudEvents:")
	})
}

// KeyFirst takes the first key that one of several finds.
func KeyFirst(all ...KeyFrom) KeyFrom { return adapter.First[*amqp.Delivery, KeyFrom](all) }

// KeyJSON takes the key from the JSON document in the body, at an RFC 6901 pointer such as "/order/id". A string is
// the key as it is, a number as it is written (1 and 1.0 are two keys). Anything else, or a body that is not one JSON
// document, has no key.
func KeyJSON(pointer string) KeyFrom {
	return adapter.JSON[*amqp.Delivery]{Pointer: pointer, Body: func(d *amqp.Delivery) []byte { return d.Body }}
}

// KeyBody takes the SHA-256 of the body. Two messages with one body are then one intent: use it only where no key can be had from the sender, and
// every intent has a body of its own.
func KeyBody() KeyFrom { return KeyFunc(func(d *amqp.Delivery) string { return bodyID(d.Body) }) }

// bodyID names a message by its body.
func bodyID(body []byte) string {
	sum := sha256.Sum256(body)
	return "sha256:" + hex.EncodeToString(sum[:])
}
