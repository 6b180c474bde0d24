// Package cloudevents knows how the bindings of CloudEvents 1.0 name the attributes of an event in the headers of each broker.
package cloudevents

import (
	"strings"

	"github.com/pawl-go/pawl"
)

// The prefixes of attributes in headers, by binding. [pawl.Message] has those of HTTP.
const (
	HTTP  = "ce-"          // HTTP and NATS
	Kafka = "ce_"          // Kafka
	AMQP  = "cloudEvents_" // AMQP; "cloudEvents:" is read as well
)

// Rename returns headers named as in HTTP with the names of another binding. Headers that are no attributes keep theirs.
func Rename(headers map[string]string, prefix string) map[string]string {
	renamed := make(map[string]string, len(headers))
	for name, value := range headers {
		if attribute, is := strings.CutPrefix(name, HTTP); is {
			name = prefix + attribute
		}
		renamed[name] = value
	}
	return renamed
}

// Key names the intent of an event: its source and its id, which only together are unique. header returns a header's value, "" if there is
// none. Key returns "" unless the event has both. If the two are longer than a key may be, it is their SHA-256.
func Key(header func(name string) string, prefix string) string {
	source, id := header(prefix+"source"), header(prefix+"id")
	if source == "" || id == "" {
		return ""
	}
	key := pawl.Key(source, id)
	if len(key) > pawl.MaxKey {
		return "sha256:" + pawl.FingerprintOf([]byte(key)).String()
	}
	return key
}
