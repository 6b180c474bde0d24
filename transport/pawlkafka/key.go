package pawlkafka

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/transport/internal/adapter"
)

// DefaultKeyHeader is the header that carries the idempotency key by default.
const DefaultKeyHeader = "Idempotency-Key"

// A Record is a fetched record, passed to a [KeyFrom].
type Record struct {
	Raw     *kgo.Record // as the client returned it; do not modify it
	TopicID [16]byte    // changes when the topic is deleted and recreated
}

// KeyFrom finds the idempotency key of a record. The sender chooses one key for each intent and
// uses it for every resend. KeyOf returns "" if the record has no key.
type KeyFrom interface {
	KeyOf(r Record) string
}

// KeyFunc makes a [KeyFrom] of a function, for keys stored elsewhere. Do not use the record's own
// key: it names an entity, so all changes of that entity share it.
type KeyFunc func(r Record) string

// KeyOf calls f.
func (f KeyFunc) KeyOf(r Record) string { return f(r) }

// DefaultKey takes the header Idempotency-Key, else a CloudEvent's source and id together.
func DefaultKey() KeyFrom { return KeyFirst(KeyHeader(DefaultKeyHeader), KeyCloudEvent()) }

// KeyHeader takes the key from the header with that exact name; case matters. If the header is
// repeated, the last value counts.
func KeyHeader(name string) KeyFrom {
	return adapter.Named[Record]{By: "KeyHeader", Name: name, Of: func(r Record, name string) string { return headerOf(r.Raw, name) }}
}

// KeyCloudEvent joins the headers ce_source and ce_id of a CloudEvent as [pawl.Key] does. If the
// result is too long for a key, it takes the SHA-256 of the two. An event in structured mode has
// its attributes in the body: use KeyFunc, and pawl.Key of both attributes.
func KeyCloudEvent() KeyFrom {
	return KeyFunc(func(r Record) string {
		return adapter.EventKey(func(name string) string { return headerOf(r.Raw, name) }, adapter.EventKafka)
	})
}

// KeyFirst returns the first key that one of several finds.
func KeyFirst(all ...KeyFrom) KeyFrom { return adapter.First[Record, KeyFrom](all) }

// KeyJSON takes the key from the JSON document in the value, at an RFC 6901 pointer such as
// "/order/id". A string is taken as it is and a number as it is written, so 1 and 1.0 are two keys.
// It finds no key in any other value, or if the record's value is not exactly one JSON document.
func KeyJSON(pointer string) KeyFrom {
	return adapter.JSON[Record]{Pointer: pointer, Body: func(r Record) []byte { return r.Raw.Value }}
}

// KeyPosition uses the record's place in its log: topic id, partition, leader epoch and offset. It
// protects against redelivery only. If the producer resends, or the topic is copied to another
// cluster, the place is new and the effect happens again. Use it only if the sender provides no
// key.
//
// A recreated topic has another id, and a truncated log another epoch, so an old key never meets a
// new record. A cluster without topic ids (before Kafka 2.8) gives no such key.
func KeyPosition() KeyFrom {
	return KeyFunc(func(r Record) string {
		id := topicID(r.TopicID)
		if !id.isSet() {
			return ""
		}
		return pawl.Key(id.String(), fmt.Sprint(r.Raw.Partition), fmt.Sprint(r.Raw.LeaderEpoch), fmt.Sprint(r.Raw.Offset))
	})
}
