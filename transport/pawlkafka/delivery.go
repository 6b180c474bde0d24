package pawlkafka

import (
	"encoding/hex"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/callback"
	"github.com/pawl-go/pawl/transport/internal/adapter"
)

// Names in Delivery.Attributes.
const (
	// BinarySuffix marks attributes that are no text: a header "photo" whose value is not UTF-8, or holds a zero octet, arrives as
	// "photo;base64", in standard base64.
	BinarySuffix = adapter.BinarySuffix
	// TombstoneAttribute is "true" for a record whose value is null: in a compacted topic it deletes its key. Its payload is empty, as that
	// of a record with an empty value is.
	TombstoneAttribute = "pawl-tombstone"
	// RecordKeyAttribute holds the record's key, which names the entity that the record is about. Absent if the record has none.
	RecordKeyAttribute = "pawl-record-key"
)

// timestampLogAppend is the type of a timestamp that the broker set (message.timestamp.type=LogAppendTime); else the producer did.
const timestampLogAppend = 1

// A handout is a record that was taken from its window, with what was true then.
type handout struct {
	at       *place
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
	case r.Timestamp.UnixMilli() <= 0: // a producer that knows no time writes 0 or -1
	case r.Attrs.TimestampType() == timestampLogAppend:
		d.SentAt = r.Timestamp
	default:
		d.ProducedAt = r.Timestamp
	}
	return d
}

// messageID reads topic#id/partition/offset. The id tells a topic from an earlier one of its name.
func messageID(p topicPartition, id topicID, offset int64) string {
	behind := "#" + id.short() + "/" + strconv.Itoa(int(p.id)) + "/" + strconv.FormatInt(offset, 10)
	topic := p.topic
	if over := len(topic) + len(behind) - pawl.MaxKey; over > 0 {
		topic = topic[:len(topic)-over]
	}
	return topic + behind
}

// orderingKey names what the order of records is about: the topic and the record's key. A key that is no text comes in hexadecimal digits,
// as PostgreSQL takes neither a zero octet nor what is not UTF-8. Records without a key have no order.
func orderingKey(r *kgo.Record) string {
	switch {
	case r.Key == nil:
		return ""
	case adapter.IsText(r.Key):
		return r.Topic + "/" + string(r.Key)
	}
	return r.Topic + "/hex:" + hex.EncodeToString(r.Key)
}

// headerOf returns the last value of a header, as Kafka's clients do; "" if there is none.
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
		if h.Key != TombstoneAttribute && h.Key != RecordKeyAttribute { // these are ours to say
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

// owned copies a record out of the buffer of its fetch, which one record would keep in memory as a whole.
func owned(r *kgo.Record) *kgo.Record {
	one := &kgo.Record{Key: clone(r.Key), Value: clone(r.Value), Timestamp: r.Timestamp, Topic: r.Topic, Partition: r.Partition,
		Attrs: r.Attrs, ProducerEpoch: r.ProducerEpoch, ProducerID: r.ProducerID, LeaderEpoch: r.LeaderEpoch, Offset: r.Offset}
	if len(r.Headers) > 0 {
		one.Headers = make([]kgo.RecordHeader, len(r.Headers))
		for i, h := range r.Headers {
			one.Headers[i] = kgo.RecordHeader{Key: strings.Clone(h.Key), Value: clone(h.Value)}
		}
	}
	return one
}

// clone keeps the difference between null and empty.
func clone(b []byte) []byte {
	if b == nil {
		return nil
	}
	return append(make([]byte, 0, len(b)), b...)
}

// recordOverhead is what a record costs in memory beside its octets.
const recordOverhead = 400

func sizeOf(r *kgo.Record) int {
	size := recordOverhead + len(r.Key) + len(r.Value)
	for _, h := range r.Headers {
		size += 64 + len(h.Key) + len(h.Value)
	}
	return size
}
