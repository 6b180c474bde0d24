package pawlrabbitmq

import (
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/callback"
	"github.com/pawl-go/pawl/transport/internal/adapter"
)

// Identify finds the key and the ordering key of a stored delivery as Receive would now; see
// [pawl.Identifier]. [Config.Key] and [Config.OrderingKey] get a message with the body, the headers
// and the properties that are attributes. Headers that were numbers, times or tables are text.
func (s *Source) Identify(d pawl.Delivery) pawl.Delivery {
	s.identify(messageOf(d), &d)
	return d
}

// identify sets the key and the ordering key. If one of their functions panics, Fault holds that.
func (s *Source) identify(m *amqp.Delivery, d *pawl.Delivery) {
	d.Key, d.Fault = callback.Get("Config.Key", func() string { return s.config.Key.KeyOf(m) })
	d.KeyFault, d.OrderingKey = "", ""
	if s.config.OrderingKey != nil && d.Fault == nil {
		d.OrderingKey, d.Fault = callback.Get("Config.OrderingKey", func() string { return s.config.OrderingKey(m) })
	}
}

func messageOf(d pawl.Delivery) *amqp.Delivery {
	m := &amqp.Delivery{Body: d.Payload, MessageId: d.MessageID, Timestamp: d.ProducedAt, Headers: amqp.Table{}}
	if m.MessageId == bodyID(d.Payload) { // the message had none
		m.MessageId = ""
	}
	properties := propertiesOf(m)
	for name, value := range d.Attributes {
		if property, is := properties[name]; is {
			*property = value
			continue
		}
		if name == ContentTypeAttribute {
			m.ContentType = value
		}
		if base, octets, binary := adapter.Binary(name, value); binary {
			m.Headers[base] = octets
			continue
		}
		m.Headers[name] = value
	}
	return m
}
