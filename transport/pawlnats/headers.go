package pawlnats

import (
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pawl-go/pawl/transport/internal/adapter"
)

// SubjectAttribute is the attribute of a delivery that holds the message's subject. A header of that name does not reach the handler.
const SubjectAttribute = "nats.subject"

// BinarySuffix marks headers that are no text in Delivery.Attributes: a header "photo" whose value is no UTF-8, or holds a NUL, arrives as
// "photo;base64", in standard base64.
const BinarySuffix = adapter.BinarySuffix

// ProducedAtHeader says when the producer made the message, in RFC 3339; it becomes [pawl.Delivery.ProducedAt]. A producer sets it if it
// wants to, the same at each resend.
const ProducedAtHeader = "Produced-At"

// lastOf is the last value of a header, "" if there is none.
func lastOf(h nats.Header, name string) string {
	values := h[name]
	if len(values) == 0 {
		return ""
	}
	return values[len(values)-1]
}

// attributesOf are the headers of a message, the last value of each, and its subject.
func attributesOf(m *nats.Msg) map[string]string {
	all := make(map[string]string, len(m.Header)+1)
	for name := range m.Header {
		value := lastOf(m.Header, name)
		name = strings.ToValidUTF8(name, "\uFFFD")
		if adapter.IsText(value) {
			all[name] = value
		} else {
			adapter.SetBinary(all, name, []byte(value))
		}
	}
	all[SubjectAttribute] = m.Subject
	return all
}

// producedAt reads [ProducedAtHeader]; zero if there is none.
func producedAt(m *nats.Msg) time.Time {
	at, _ := time.Parse(time.RFC3339Nano, lastOf(m.Header, ProducedAtHeader))
	return at
}
