package pawlnats

import (
	"strconv"

	"github.com/nats-io/nats.go"

	"github.com/pawl-go/pawl/transport/internal/adapter"
)

// Names of headers that carry an idempotency key.
const (
	DefaultKeyHeader = "Idempotency-Key" // checked first
	MsgIDHeader      = nats.MsgIdHdr     // JetStream drops resends of an id within its window
)

// KeyFrom finds the idempotency key of a message. The sender chooses one key for each intent and
// uses it for every resend. KeyOf returns "" if the message has no key.
type KeyFrom interface {
	KeyOf(m *nats.Msg) string
}

// KeyFunc makes a [KeyFrom] of a function, for keys stored elsewhere.
type KeyFunc func(m *nats.Msg) string

// KeyOf calls f.
func (f KeyFunc) KeyOf(m *nats.Msg) string { return f(m) }

// DefaultKey takes the header Idempotency-Key, else Nats-Msg-Id, else a CloudEvent's source and id.
// Only those two together are unique.
func DefaultKey() KeyFrom {
	return KeyFirst(KeyHeader(DefaultKeyHeader), KeyHeader(MsgIDHeader), KeyCloudEvent())
}

// KeyHeader takes the key from the header with that exact name; case matters. If the header is
// repeated, the last value counts.
func KeyHeader(name string) KeyFrom {
	return adapter.Named[*nats.Msg]{By: "KeyHeader", Name: name, Of: func(m *nats.Msg, name string) string { return lastOf(m.Header, name) }}
}

// KeyCloudEvent joins the headers ce-source and ce-id of a CloudEvent as [pawl.Key] does. If the
// result is too long for a key, it takes the SHA-256 of the two.
func KeyCloudEvent() KeyFrom {
	return KeyFunc(func(m *nats.Msg) string {
		return adapter.EventKey(func(name string) string { return lastOf(m.Header, name) }, adapter.EventHTTP)
	})
}

// KeyFirst returns the first key that one of several finds.
func KeyFirst(all ...KeyFrom) KeyFrom { return adapter.First[*nats.Msg, KeyFrom](all) }

// KeyJSON takes the key from the JSON document in the body, at an RFC 6901 pointer such as
// "/order/id". A string is taken as it is and a number as it is written, so 1 and 1.0 are two keys.
// It finds no key in any other value, or if the body is not exactly one JSON document.
func KeyJSON(pointer string) KeyFrom {
	return adapter.JSON[*nats.Msg]{Pointer: pointer, Body: func(m *nats.Msg) []byte { return m.Data }}
}

// KeyPosition uses the message's place in its stream: stream, sequence and the time at which
// JetStream stored it. It protects against redelivery only. If the producer publishes again, the
// message gets a new place and its effect happens again. Use it only if the sender provides no key.
func KeyPosition() KeyFrom {
	return KeyFunc(func(m *nats.Msg) string {
		meta, err := m.Metadata()
		if err != nil {
			return ""
		}
		return position(meta)
	})
}

// position identifies a message permanently. A recreated stream repeats sequences at other times.
func position(meta *nats.MsgMetadata) string {
	return meta.Stream + "/" + strconv.FormatUint(meta.Sequence.Stream, 10) + "@" + strconv.FormatInt(meta.Timestamp.UnixNano(), 36)
}
