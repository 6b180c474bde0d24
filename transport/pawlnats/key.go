package pawlnats

import (
	"strconv"

	"github.com/nats-io/nats.go"

	"github.com/pawl-go/pawl/transport/internal/adapter"
)

// Names of headers that carry a key.
const (
	DefaultKeyHeader = "Idempotency-Key" // looked at first
	MsgIDHeader      = nats.MsgIdHdr     // Nats-Msg-Id, by which JetStream drops what was published twice within its window
)

// KeyFrom finds the idempotency key of a message: the sender's name for the intent, the same for every resend.
// It answers "" for a message that carries none.
type KeyFrom interface {
	KeyOf(m *nats.Msg) string
}

// KeyFunc makes a [KeyFrom] of a function, for keys that are somewhere else.
type KeyFunc func(m *nats.Msg) string

// KeyOf calls f.
func (f KeyFunc) KeyOf(m *nats.Msg) string { return f(m) }

// DefaultKey takes the header Idempotency-Key, else Nats-Msg-Id, else the source and the id of a CloudEvent, which only together are unique.
func DefaultKey() KeyFrom {
	return KeyFirst(KeyHeader(DefaultKeyHeader), KeyHeader(MsgIDHeader), KeyCloudEvent())
}

// KeyHeader takes the key from the header of that name, in that case. A header that is there several times counts with its last value.
func KeyHeader(name string) KeyFrom {
	return adapter.Named[*nats.Msg]{By: "KeyHeader", Name: name, Of: func(m *nats.Msg, name string) string { return lastOf(m.Header, name) }}
}

// KeyCloudEvent takes the source and the id of a CloudEvent, from the headers ce-source and ce-id, joined as [pawl.Key] does; if the two are
// longer than a key may be, it is their SHA-256.
func KeyCloudEvent() KeyFrom {
	return KeyFunc(func(m *nats.Msg) string {
		return adapter.EventKey(func(name string) string { return lastOf(m.Header, name) }, adapter.EventHTTP)
	})
}

// KeyFirst takes the first key that one of several finds.
func KeyFirst(all ...KeyFrom) KeyFrom { return adapter.First[*nats.Msg, KeyFrom](all) }

// KeyJSON takes the key from the JSON document in the body, at an RFC 6901 pointer such as "/order/id". A string is
// the key as it is, a number as it is written (1 and 1.0 are two keys). Anything else, or a body that is not one JSON
// document, has no key.
func KeyJSON(pointer string) KeyFrom {
	return adapter.JSON[*nats.Msg]{Pointer: pointer, Body: func(m *nats.Msg) []byte { return m.Data }}
}

// KeyPosition takes the place of the message in its stream: stream, sequence and the time at which JetStream stored it. It protects against
// redelivery, and not against a resend: a producer that publishes again makes a new place, and the effect happens again. Use it only where
// no key can be had from the sender.
func KeyPosition() KeyFrom {
	return KeyFunc(func(m *nats.Msg) string {
		meta, err := m.Metadata()
		if err != nil {
			return ""
		}
		return position(meta)
	})
}

// position names a message for ever: a stream that is made anew begins with sequence 1 again, at another time.
func position(meta *nats.MsgMetadata) string {
	return meta.Stream + "/" + strconv.FormatUint(meta.Sequence.Stream, 10) + "@" + strconv.FormatInt(meta.Timestamp.UnixNano(), 36)
}
