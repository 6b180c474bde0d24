package adapter

import (
	"strings"

	"github.com/pawl-go/pawl"
)

// Header prefixes of CloudEvents 1.0 attributes, by binding. [pawl.Message] uses those of HTTP.
const (
	EventHTTP  = "ce-"          // HTTP and NATS
	EventKafka = "ce_"          // Kafka
	EventAMQP  = "cloudEvents_" // AMQP; "cloudEvents:" is accepted too
)

// RenameEvent changes the prefix of CloudEvents attributes from HTTP's to another binding's. Other
// headers keep their names.
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

// EventKey returns the key of an event: its source and its id, which are unique only together.
// header returns a header's value, or "". EventKey returns "" if either is missing. If the key
// would be too long, it is the SHA-256 of it.
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
