package adapter

import (
	"strings"

	"github.com/pawl-go/pawl"
)

// The prefixes of the attributes of a CloudEvent 1.0 in headers, by binding. [pawl.Message] has those
// of HTTP.
const (
	EventHTTP  = "ce-"          // HTTP and NATS
	EventKafka = "ce_"          // Kafka
	EventAMQP  = "cloudEvents_" // AMQP; "cloudEvents:" is read as well
)

// RenameEvent returns headers named as in HTTP with the names of another binding. Headers that are no
// attributes of an event keep theirs.
func RenameEvent(headers map[string]string, prefix string) map[string]string {
	renamed := make(map[string]string, len(headers))
	for name, value := range headers {
		if attribute, is := strings.CutPrefix(name, EventHTTP); is {
			name = prefix + attribute
		}
		renamed[name] = value
	}
	return renamed
}

// EventKey names the intent of an event: its source and its id, which only together are unique.
// header returns a header's value, "" if there is none. EventKey returns "" unless the event has both.
// If the two are longer than a key may be, it is their SHA-256.
func EventKey(header func(name string) string, prefix string) string {
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
