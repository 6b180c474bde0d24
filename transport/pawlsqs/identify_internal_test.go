package pawlsqs

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/pawl-go/pawl"
)

// Identify treats a stored delivery like a message received now, unwrapping included. The key found
// at first does not matter.
func TestIdentify_AsReceivedNow(t *testing.T) {
	t.Parallel()
	notice := `{"Type":"Notification","MessageId":"m-1","TopicArn":"arn","Message":"{\"id\":17}","MessageAttributes":{"key":{"Type":"String","Value":"order-17"}}}`
	system := map[string]string{"SentTimestamp": "1700000000000", "MessageGroupId": "account", "ApproximateReceiveCount": "3"}
	messages := map[string]types.Message{
		"text": {MessageId: aws.String("m"), Body: aws.String(`{"id":17}`), Attributes: system,
			MessageAttributes: map[string]types.MessageAttributeValue{"key": text("order-1"), ProducedAtAttribute: text("2026-01-01T00:00:00Z")}},
		"octets": {MessageId: aws.String("m"), Body: aws.String("AP8="), Attributes: system, MessageAttributes: map[string]types.MessageAttributeValue{
			EncodingAttribute: text(encodingBase64), "photo": {DataType: aws.String("Binary"), BinaryValue: []byte{0, 1}}}},
		"envelope": {MessageId: aws.String("m"), Body: aws.String(notice), Attributes: system},
	}
	for name, config := range map[string]Config{"attribute": {Key: KeyAttribute("key")}, "json": {Key: KeyJSON("/id")}, "id": {Key: KeyMessageID()},
		"unwrapped": {Key: KeyAttribute("key"), Unwrap: UnwrapSNS}, "function": {Key: KeyFunc(func(m types.Message) string {
			return aws.ToString(m.Body) + m.Attributes["SentTimestamp"] + m.Attributes["MessageGroupId"] + strings.Repeat("p", len(m.MessageAttributes["photo"].BinaryValue))
		})}} {
		for what, m := range messages {
			received := func(c Config) pawl.Delivery { return (&Source{config: c, fifo: true}).delivery(m, time.Time{}) }
			was, want := received(Config{Key: KeyAttribute("none")}), received(config)
			for _, source := range []pawl.Identifier{&Source{config: config, fifo: true}, &LambdaBatch{config: config}} {
				got := source.Identify(was)
				if got.Key != want.Key || got.OrderingKey != want.OrderingKey || string(got.Payload) != string(want.Payload) || !maps.Equal(got.Attributes, want.Attributes) ||
					!got.SentAt.Equal(want.SentAt) || !got.ProducedAt.Equal(want.ProducedAt) || got.MessageID != want.MessageID || got.Receives != want.Receives {
					t.Errorf("%s, %s: %+v, want %+v", name, what, got, want)
				}
			}
		}
	}
}
