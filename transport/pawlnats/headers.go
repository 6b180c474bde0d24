package pawlnats

import (
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pawl-go/pawl/transport/internal/adapter"
)

// SubjectAttribute is the attribute with the message's subject. It hides a header of the same name.
const SubjectAttribute = "nats.subject"

// BinarySuffix marks headers in Delivery.Attributes whose value is not UTF-8 or contains a NUL. A
// binary header "photo" arrives as "photo;base64", in standard base64.
const BinarySuffix = adapter.BinarySuffix

// ProducedAtHeader is an optional header with the time at which the producer made the message, in
// RFC 3339. It must be the same at each resend. It becomes [pawl.Delivery.ProducedAt].
const ProducedAtHeader = "Produced-At"

func lastOf(h nats.Header, name string) string {
	values := h[name]
	if len(values) == 0 {
		return ""
	}
	return values[len(values)-1]
}

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

// producedAt parses [ProducedAtHeader]; zero if it is absent or invalid.
func producedAt(m *nats.Msg) time.Time {
	at, _ := time.Parse(time.RFC3339Nano, lastOf(m.Header, ProducedAtHeader))
	return at
}
