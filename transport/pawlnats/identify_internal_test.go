package pawlnats

import (
	"maps"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/pawl-go/pawl"
)

// Identify recomputes the keys of a stored delivery as Receive would now.
func TestIdentify_AsReceivedNow(t *testing.T) {
	t.Parallel()
	messages := map[string]*nats.Msg{
		"text":   {Subject: "orders.17", Data: []byte(`{"id":"order-1"}`), Header: nats.Header{"Key": {"first", "order-1"}, "key": {"other"}}},
		"octets": {Subject: "orders.18", Data: []byte("v"), Header: nats.Header{"Key": {"\xff"}}},
		"none":   {Subject: "orders.19"},
	}
	byLast := func(subject string) string { return subject[strings.LastIndexByte(subject, '.'):] }
	for config, from := range map[string]KeyFrom{"header": KeyHeader("Key"), "case": KeyHeader("key"), "json": KeyJSON("/id"),
		"function": KeyFunc(func(m *nats.Msg) string { return m.Subject + string(m.Data) })} {
		for name, m := range messages {
			received := func(from KeyFrom) pawl.Delivery {
				s := &Source{config: Config{Key: from, OrderingKey: byLast}}
				return s.delivery(m, &nats.MsgMetadata{}, &binding{})
			}
			was, want := received(KeyHeader("none")), received(from)
			was.OrderingKey = "" // stored without Config.OrderingKey
			got := (&Source{config: Config{Key: from, OrderingKey: byLast}}).Identify(was)
			if got.Key != want.Key || got.OrderingKey != want.OrderingKey || !maps.Equal(got.Attributes, want.Attributes) {
				t.Errorf("%s, %s: %+v, want %+v", config, name, got, want)
			}
		}
	}
}
