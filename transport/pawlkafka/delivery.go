package pawlkafka

import (
	"bytes"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/callback"
	"github.com/pawl-go/pawl/transport/internal/adapter"
)

// Names of attributes in Delivery.Attributes.
const (
	// BinarySuffix marks attributes whose value is not UTF-8 or contains a zero byte. A binary
	// header "photo" arrives as "photo;base64", in standard base64.
	BinarySuffix = adapter.BinarySuffix
	// TombstoneAttribute is "true" for a record whose value is null, which deletes its key in a
	// compacted topic. Its payload is empty, like that of a record with an empty value.
	TombstoneAttribute = "pawl-tombstone"
	// RecordKeyAttribute holds the record's key, which names the entity; absent without a key.
	RecordKeyAttribute = "pawl-record-key"
)

// timestampLogAppend is the type of a timestamp set by the broker
// (message.timestamp.type=LogAppendTime). All others are set by the producer.
const timestampLogAppend = 1

// A handout is a record taken from its window, with a copy of the partition's state at that time.
type handout struct {
	at       *entry
	record   *kgo.Record
	topic    topicID
	receives int
}

func (s *Source) delivery(h handout) pawl.Delivery {
	p, r := h.at.of.topicPartition, h.record
	key, fault := callback.Get("Config.Key", func() string { return s.config.Key.KeyOf(Record{Raw: r, TopicID: h.topic}) })
	d := pawl.Delivery{
		Key:         key,
		Fault:       fault,
		MessageID:   messageID(p, h.topic, r.Offset),
		OrderingKey: h.at.key,
		Payload:     r.Value,
		Attributes:  attributes(r),
		Receives:    h.receives,
		Log:         p.String(),
		Offset:      r.Offset,
		Handle:      h.at,
	}
	switch {
	case r.Timestamp.UnixMilli() <= 0: // a producer without a clock writes 0 or -1
	case r.Attrs.TimestampType() == timestampLogAppend:
		d.SentAt = r.Timestamp
	default:
		d.ProducedAt = r.Timestamp
	}
	return d
}

// messageID returns topic#id/partition/offset. The id distinguishes a topic from an earlier one of
// the same name. A long topic name is cut to keep within pawl.MaxKey.
func messageID(p topicPartition, id topicID, offset int64) string {
	behind := "#" + id.short() + "/" + strconv.Itoa(int(p.id)) + "/" + strconv.FormatInt(offset, 10)
	topic := p.topic
	if over := len(topic) + len(behind) - pawl.MaxKey; over > 0 {
		topic = topic[:len(topic)-over]
	}
	return topic + behind
}

// orderingKey returns topic/key, or "" if the record has no key: such records have no order. A key
// that is not text is hex-encoded, because PostgreSQL accepts neither zero bytes nor invalid UTF-8.
func orderingKey(r *kgo.Record) string {
	switch {
	case r.Key == nil:
		return ""
	case adapter.IsText(r.Key):
		return r.Topic + "/" + string(r.Key)
	}
	return r.Topic + "/hex:" + hex.EncodeToString(r.Key)
}

// headerOf returns the last value of a header, as Kafka's clients do, or "" if it is absent.
func headerOf(r *kgo.Record, name string) string {
	for _, h := range slices.Backward(r.Headers) {
		if h.Key == name {
			return string(h.Value)
		}
	}
	return ""
}

func attributes(r *kgo.Record) map[string]string {
	to := make(map[string]string, len(r.Headers)+1)
	set := func(name string, value []byte) {
		if !adapter.IsText([]byte(name)) {
			name = "hex:" + hex.EncodeToString([]byte(name))
		}
		delete(to, name)
		delete(to, name+BinarySuffix)
		if adapter.IsText(value) {
			to[name] = string(value)
		} else {
			adapter.SetBinary(to, name, value)
		}
	}
	for _, h := range r.Headers { // the last wins
		// Only the source sets these.
		if h.Key != TombstoneAttribute && h.Key != RecordKeyAttribute {
			set(h.Key, h.Value)
		}
	}
	if r.Key != nil {
		set(RecordKeyAttribute, r.Key)
	}
	if r.Value == nil {
		to[TombstoneAttribute] = "true"
	}
	return to
}

// owned copies a record out of its fetch buffer, which one record would keep in memory as a whole.
// A clone of nil is nil, because null and empty differ in Kafka.
func owned(r *kgo.Record) *kgo.Record {
	one := &kgo.Record{Key: bytes.Clone(r.Key), Value: bytes.Clone(r.Value), Timestamp: r.Timestamp, Topic: r.Topic, Partition: r.Partition,
		Attrs: r.Attrs, ProducerEpoch: r.ProducerEpoch, ProducerID: r.ProducerID, LeaderEpoch: r.LeaderEpoch, Offset: r.Offset}
	if len(r.Headers) > 0 {
		one.Headers = make([]kgo.RecordHeader, len(r.Headers))
		for i, h := range r.Headers {
			one.Headers[i] = kgo.RecordHeader{Key: strings.Clone(h.Key), Value: bytes.Clone(h.Value)}
		}
	}
	return one
}

// recordOverhead estimates the memory of a record beside its content, in bytes.
const recordOverhead = 400

func sizeOf(r *kgo.Record) int {
	size := recordOverhead + len(r.Key) + len(r.Value)
	for _, h := range r.Headers {
		size += 64 + len(h.Key) + len(h.Value)
	}
	return size
}
