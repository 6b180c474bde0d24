package pawlkafka

import (
	"maps"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pawl-go/pawl"
)

// Identify recomputes the keys of a stored delivery as Receive would now.
func TestIdentify_AsReceivedNow(t *testing.T) {
	t.Parallel()
	at := time.UnixMilli(1_700_000_000_000)
	records := map[string]*kgo.Record{
		"text": {Topic: "a/b", Partition: 3, Offset: 17, Key: []byte("account"), Value: []byte(`{"id":"order-1"}`), Timestamp: at,
			Headers: []kgo.RecordHeader{{Key: "key", Value: []byte("first")}, {Key: "key", Value: []byte("order-1")}}},
		"octets": {Topic: "t", Offset: 1, Key: []byte{0xff, 0}, Value: []byte("v"), Timestamp: at,
			Headers: []kgo.RecordHeader{{Key: "key", Value: []byte{0xff}}, {Key: "\xff", Value: []byte("x")}}},
		"no key":    {Topic: "t", Value: []byte("v"), Timestamp: at},
		"empty key": {Topic: "t", Key: []byte{}, Value: []byte("v"), Timestamp: at},
		"tombstone": {Topic: "t", Key: []byte("account"), Timestamp: at, Headers: []kgo.RecordHeader{{Key: "key", Value: []byte("order-1")}}},
	}
	for config, from := range map[string]KeyFrom{"header": KeyHeader("key"), "json": KeyJSON("/id"), "function": KeyFunc(func(r Record) string {
		raw := r.Raw
		return raw.Topic + string(raw.Key) + string(raw.Value) + raw.Timestamp.String() + string(rune('0'+raw.Partition)) + string(rune('0'+raw.Offset)) + headerOf(raw, "\xff")
	}), "null": KeyFunc(func(r Record) string {
		if r.Raw.Value == nil {
			return "null"
		}
		return ""
	})} {
		for name, r := range records {
			received := func(from KeyFrom) pawl.Delivery {
				s := &Source{config: Config{Key: from}}
				return s.delivery(handout{at: &entry{of: &partition{topicPartition: topicPartition{r.Topic, r.Partition}}, key: orderingKey(r)}, record: r})
			}
			was, want := received(KeyHeader("none")), received(from)
			got := (&Source{config: Config{Key: from}}).Identify(was)
			if got.Key != want.Key || got.OrderingKey != want.OrderingKey || !maps.Equal(got.Attributes, want.Attributes) {
				t.Errorf("%s, %s: %+v, want %+v", config, name, got, want)
			}
		}
	}
}

// Identify cannot know the record's place. It returns no key, so the consumer keeps the first one.
func TestIdentify_PositionStaysUnknown(t *testing.T) {
	t.Parallel()
	s := &Source{config: Config{Key: KeyPosition()}}
	if got := s.Identify(pawl.Delivery{Key: "position", Log: "t/0", Offset: 3}); got.Key != "" {
		t.Errorf("the key %q", got.Key)
	}
}
