package pawlrabbitmq

import (
	"fmt"
	"math"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/callback"
	"github.com/pawl-go/pawl/transport/internal/adapter"
)

// GroupHeader is the header in which a [Sink] sends a message's group, which names its aggregate.
// Use it with [ByHeader], and as the hash-header of a consistent hash exchange.
const GroupHeader = "pawl-group"

const (
	maxShort = 255 // octets of a routing key, a property or a header's name
	// maxHeaders bounds the octets of a message's headers and properties together. They go in one
	// frame, of 128 KiB by default, and a larger frame closes the connection.
	maxHeaders = 127 << 10
)

// A parcel is a message in the form in which RabbitMQ gets it.
type parcel struct {
	message amqp.Publishing
	key     string
	index   int
}

// Carries returns why RabbitMQ can never carry the event octet for octet:
//
//   - a routing key, type, content-type or header name over 255 octets,
//   - headers over 127 KiB together,
//   - a payload over [SinkConfig.MaxSize],
//   - a header with the name of one that carries the event's id or group, and another value.
func (s *Sink) Carries(m pawl.Message) error {
	_, err := s.parcel(m)
	return err
}

func (s *Sink) parcel(m pawl.Message) (parcel, error) {
	key, err := callback.Get("SinkConfig.RoutingKeyOf", func() string { return s.config.RoutingKeyOf(m) })
	if err != nil {
		return parcel{}, err
	}
	p := parcel{key: key, message: amqp.Publishing{MessageId: m.ID, Type: m.Type, ContentType: m.Headers[ContentTypeAttribute],
		DeliveryMode: amqp.Persistent, Body: m.Payload, Headers: amqp.Table{DefaultKeyHeader: m.ID}}}
	if seconds := m.Time.Unix(); seconds > 0 && seconds < math.MaxInt64 {
		p.message.Timestamp = m.Time
	}
	if m.Group != "" {
		p.message.Headers[GroupHeader] = m.Group
	}
	size := 0
	for name, value := range adapter.RenameEvent(m.Headers, adapter.EventAMQP) {
		if name == ContentTypeAttribute {
			continue
		}
		if ours, taken := p.message.Headers[name]; taken && ours != value {
			return p, fmt.Errorf("the header %q is reserved for the event's id or group", name)
		}
		p.message.Headers[name] = value
	}
	for name, value := range p.message.Headers {
		if len(name) == 0 || len(name) > maxShort {
			return p, fmt.Errorf("the name of the header %.40q has %d octets, allowed are 1 to %d", name, len(name), maxShort)
		}
		size += len(name) + len(value.(string)) + 6
	}
	for _, short := range []struct{ what, value string }{{"routing key", p.key}, {"type", m.Type}, {"content-type", p.message.ContentType}, {"id", m.ID}} {
		if len(short.value) > maxShort {
			return p, fmt.Errorf("the %s has %d octets, RabbitMQ takes %d", short.what, len(short.value), maxShort)
		}
		size += len(short.value)
	}
	switch {
	case size > maxHeaders:
		return p, fmt.Errorf("the headers have %d octets together, RabbitMQ takes %d", size, maxHeaders)
	case len(m.Payload) > s.config.MaxSize:
		return p, fmt.Errorf("the payload has %d octets, allowed are %d: store it elsewhere and send a reference", len(m.Payload), s.config.MaxSize)
	}
	return p, nil
}
