package pawlkafka

import (
	"encoding/hex"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/callback"
	"github.com/pawl-go/pawl/transport/internal/adapter"
)

// Identify recomputes the key and the ordering key of a stored delivery as Receive would now; see
// [pawl.Identifier]. [Config.Key] gets a record with the original topic, partition, offset,
// timestamp, key, value and headers. Of a repeated header only the last value is there.
//
// The LeaderEpoch is -1 and the topic's id is unknown, so [KeyPosition] returns "": the first key
// stays.
func (s *Source) Identify(d pawl.Delivery) pawl.Delivery {
	r := recordOf(d)
	d.Key, d.Fault = callback.Get("Config.Key", func() string { return s.config.Key.KeyOf(Record{Raw: r}) })
	d.KeyFault, d.OrderingKey = "", orderingKey(r)
	return d
}

// recordOf rebuilds the record of a delivery, as far as the delivery holds it.
func recordOf(d pawl.Delivery) *kgo.Record {
	r := &kgo.Record{Value: d.Payload, Topic: d.Log, Offset: d.Offset, LeaderEpoch: -1, Timestamp: d.ProducedAt}
	if r.Timestamp.IsZero() {
		r.Timestamp = d.SentAt
	}
	if slash := strings.LastIndexByte(d.Log, '/'); slash >= 0 {
		partition, _ := strconv.ParseInt(d.Log[slash+1:], 10, 32)
		r.Topic, r.Partition = d.Log[:slash], int32(partition)
	}
	for name, text := range d.Attributes {
		value := []byte(text)
		if base, octets, binary := adapter.Binary(name, text); binary {
			name, value = base, octets
		}
		switch octets, isHex := strings.CutPrefix(name, "hex:"); {
		case name == RecordKeyAttribute:
			r.Key = value
			continue
		case name == TombstoneAttribute:
			r.Value = nil
			continue
		case isHex:
			if decoded, err := hex.DecodeString(octets); err == nil {
				name = string(decoded)
			}
		}
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: name, Value: value})
	}
	return r
}
