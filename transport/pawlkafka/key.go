package pawlkafka

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/transport/internal/adapter"
)

// DefaultKeyHeader is the header that carries the key unless something else is said.
const DefaultKeyHeader = "Idempotency-Key"

// A Record is a record as it was fetched, for a [KeyFrom].
type Record struct {
	Raw     *kgo.Record // as the client returned it; do not change it
	TopicID [16]byte    // of the topic, which has another one when it is deleted and made again
}

// KeyFrom finds the idempotency key of a record: the sender's name for the intent, the same for every resend.
// It answers "" for a record that carries none.
type KeyFrom interface {
	KeyOf(r Record) string
}

// KeyFunc makes a [KeyFrom] of a function, for keys that are somewhere else. Do not take the key of the record: it names an entity, and every
// change of that entity has it.
type KeyFunc func(r Record) string

// KeyOf calls f.
func (f KeyFunc) KeyOf(r Record) string { return f(r) }

// DefaultKey takes the header Idempotency-Key, else the source and the id of a CloudEvent, which only together are unique.
func DefaultKey() KeyFrom { return KeyFirst(KeyHeader(DefaultKeyHeader), KeyCloudEvent()) }

// KeyHeader takes the key from the header of that name, in that case. Of a header that is there several times the last counts.
func KeyHeader(name string) KeyFrom {
	return adapter.Named[Record]{By: "KeyHeader", Name: name, Of: func(r Record, name string) string { return headerOf(r.Raw, name) }}
}

// KeyCloudEvent takes the source and the id of a CloudEvent, from the headers ce_source and ce_id, joined as [pawl.Key] does; if the two are
// longer than a key may be, it is their SHA-256. An event in structured mode has its attributes in the body: take KeyFunc, and pawl.Key of both.
func KeyCloudEvent() KeyFrom {
	return KeyFunc(func(r Record) string {
		return adapter.EventKey(func(name string) string { return headerOf(r.Raw, name) }, adapter.EventKafka)
	})
}

// KeyFirst takes the first key that one of several finds.
func KeyFirst(all ...KeyFrom) KeyFrom { return adapter.First[Record, KeyFrom](all) }

// KeyJSON takes the key from the JSON document in the value, at an RFC 6901 pointer such as "/order/id". A string is
// the key as it is, a number as it is written (1 and 1.0 are two keys). Anything else, or a value that is not one JSON
// document, has no key.
func KeyJSON(pointer string) KeyFrom {
	return adapter.JSON[Record]{Pointer: pointer, Body: func(r Record) []byte { return r.Raw.Value }}
}

// KeyPosition takes the place of the record in its log: the id of the topic, the partition, the epoch of the leader that wrote it, and the
// offset. It protects against redelivery, and not against a resend: a producer that sends again makes a new record, and the effect happens
// again. So it does if the topic is copied to another cluster. Use it only where no key can be had from the sender.
//
// Neither a topic that was made anew nor a log that was truncated brings an old key with a new record: the id of the topic differs, or the
// epoch does. A cluster without topic ids (before Kafka 2.8) gives no such key.
func KeyPosition() KeyFrom {
	return KeyFunc(func(r Record) string {
		id := topicID(r.TopicID)
		if !id.known() {
			return ""
		}
		return pawl.Key(id.String(), fmt.Sprint(r.Raw.Partition), fmt.Sprint(r.Raw.LeaderEpoch), fmt.Sprint(r.Raw.Offset))
	})
}
