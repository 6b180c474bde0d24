package pawlnats

import (
	"github.com/nats-io/nats.go"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/callback"
	"github.com/pawl-go/pawl/transport/internal/adapter"
)

// Identify recomputes the key and the ordering key of a stored delivery as Receive would now; see
// [pawl.Identifier]. [Config.Key] gets a message with the original subject, data and headers. Of a
// repeated header only the last value is there. The message has no metadata, so [KeyPosition] finds
// no key, and the delivery keeps its first one.
func (s *Source) Identify(d pawl.Delivery) pawl.Delivery {
	s.identify(messageOf(d), &d)
	return d
}

// identify sets the key and the ordering key. If one of their functions panics, Fault holds that.
func (s *Source) identify(m *nats.Msg, d *pawl.Delivery) {
	d.Key, d.Fault = callback.Get("Config.Key", func() string { return s.config.Key.KeyOf(m) })
	d.KeyFault, d.OrderingKey = "", ""
	if s.config.OrderingKey != nil && d.Fault == nil {
		d.OrderingKey, d.Fault = callback.Get("Config.OrderingKey", func() string { return s.config.OrderingKey(m.Subject) })
	}
}

// messageOf rebuilds the message of a delivery, as far as the delivery holds it.
func messageOf(d pawl.Delivery) *nats.Msg {
	m := &nats.Msg{Subject: d.Attributes[SubjectAttribute], Data: d.Payload, Header: nats.Header{}}
	for name, value := range d.Attributes {
		if name == SubjectAttribute {
			continue
		}
		if base, octets, binary := adapter.Binary(name, value); binary {
			name, value = base, string(octets)
		}
		m.Header[name] = []string{value}
	}
	return m
}
