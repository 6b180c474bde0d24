package pawlrabbitmq

import (
	"maps"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/pawl-go/pawl"
)

// Identify finds for a stored delivery the identity that Receive would find now.
func TestIdentify_AsReceivedNow(t *testing.T) {
	t.Parallel()
	messages := map[string]*amqp.Delivery{
		"properties": {Body: []byte(`{"id":"order-1"}`), MessageId: "m-1", Exchange: "e", RoutingKey: "r", Type: "t", CorrelationId: "c", ReplyTo: "back", AppId: "a",
			ContentEncoding: "identity", ContentType: "application/json", Timestamp: time.Unix(1_700_000_000, 0), Headers: amqp.Table{"key": "order-1"}},
		"number": {Body: []byte("v"), Headers: amqp.Table{"key": int32(17)}},
		"octets": {Body: []byte("v"), Headers: amqp.Table{"key": []byte("octets"), "content-type": "own"}},
		"none":   {Body: []byte("v")},
	}
	byRoute := func(d *amqp.Delivery) string { return d.RoutingKey }
	for config, from := range map[string]KeyFrom{"default": DefaultKey(), "header": KeyHeader("key"), "id": KeyMessageID(), "json": KeyJSON("/id"), "body": KeyBody(),
		"function": KeyFunc(func(d *amqp.Delivery) string {
			return d.Exchange + d.RoutingKey + d.Type + d.CorrelationId + d.ReplyTo + d.AppId + d.ContentEncoding + d.Timestamp.String() + d.ContentType
		})} {
		for name, m := range messages {
			if config == "function" && name == "octets" {
				continue // a header has precedence over the property of its name
			}
			received := func(from KeyFrom) pawl.Delivery {
				return (&Source{config: Config{Key: from, OrderingKey: byRoute}}).delivery(m)
			}
			was, want := received(KeyHeader("none")), received(from)
			was.OrderingKey = "" // a configuration without OrderingKey
			got := (&Source{config: Config{Key: from, OrderingKey: byRoute}}).Identify(was)
			if got.Key != want.Key || got.OrderingKey != want.OrderingKey || !maps.Equal(got.Attributes, want.Attributes) {
				t.Errorf("%s, %s: %+v, want %+v", config, name, got, want)
			}
		}
	}
}
