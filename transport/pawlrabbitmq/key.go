package pawlrabbitmq

import (
	"crypto/sha256"
	"encoding/hex"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/pawl-go/pawl/transport/internal/adapter"
)

// DefaultKeyHeader is the header that [DefaultKey] reads first.
const DefaultKeyHeader = "Idempotency-Key"

// KeyFrom finds the idempotency key of a message: the sender's name for the intent, the same for
// every resend. It returns "" if the message has none.
type KeyFrom interface {
	KeyOf(d *amqp.Delivery) string
}

// KeyFunc makes a [KeyFrom] of a function.
type KeyFunc func(d *amqp.Delivery) string

// KeyOf calls f.
func (f KeyFunc) KeyOf(d *amqp.Delivery) string { return f(d) }

// DefaultKey takes the header Idempotency-Key, else message-id, else source and id of a CloudEvent.
func DefaultKey() KeyFrom {
	return KeyFirst(KeyHeader(DefaultKeyHeader), KeyMessageID(), KeyCloudEvent())
}

// KeyHeader takes the key from the header of exactly that name: text, or a whole number.
func KeyHeader(name string) KeyFrom {
	return adapter.Named[*amqp.Delivery]{By: "KeyHeader", Name: name, Of: func(d *amqp.Delivery, name string) string { return textOf(d.Headers[name]) }}
}

// KeyMessageID takes the property message-id, which the producer sets. It protects only if the
// producer sends the same one at a resend.
func KeyMessageID() KeyFrom { return KeyFunc(func(d *amqp.Delivery) string { return d.MessageId }) }

// KeyCloudEvent takes the source and the id of a CloudEvent, which are unique only together, from
// the headers cloudEvents_source and cloudEvents_id, or cloudEvents:source and cloudEvents:id. It
// joins them as [pawl.Key] does, and hashes a result that is too long.
func KeyCloudEvent() KeyFrom {
	return KeyFunc(func(d *amqp.Delivery) string {
		header := func(name string) string { return textOf(d.Headers[name]) }
		if key := adapter.EventKey(header, adapter.EventAMQP); key != "" {
			return key
		}
		return adapter.EventKey(header, "cloudEvents:")
	})
}

// KeyFirst takes the first key found by one of several.
func KeyFirst(all ...KeyFrom) KeyFrom { return adapter.First[*amqp.Delivery, KeyFrom](all) }

// KeyJSON takes the key from the JSON document in the body, at an RFC 6901 pointer such as
// "/order/id". A string is taken as it is, a number as written (1 and 1.0 are two keys). Other
// values, and a body that is not one JSON document, have no key.
func KeyJSON(pointer string) KeyFrom {
	return adapter.JSON[*amqp.Delivery]{Pointer: pointer, Body: func(d *amqp.Delivery) []byte { return d.Body }}
}

// KeyBody takes the SHA-256 of the body, so two messages with one body are one intent. Use it only
// if the sender gives no key and every intent has its own body.
func KeyBody() KeyFrom { return KeyFunc(func(d *amqp.Delivery) string { return bodyID(d.Body) }) }

func bodyID(body []byte) string {
	sum := sha256.Sum256(body)
	return "sha256:" + hex.EncodeToString(sum[:])
}
