package pawlsqs

import (
	"encoding/json"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/transport/internal/adapter"
)

// DefaultKeyAttribute is the message attribute that carries the key by default.
const DefaultKeyAttribute = "Idempotency-Key"

// KeyFrom finds the idempotency key of a message: the sender's name for the intent, the same for
// every resend. It returns "" for a message without a key.
type KeyFrom interface {
	KeyOf(m types.Message) string
}

// KeyFunc makes a [KeyFrom] of a function, for keys in other places. Besides its body and message
// attributes, a message has the system attributes ApproximateReceiveCount, SentTimestamp,
// MessageGroupId, MessageDeduplicationId and DeadLetterQueueSourceArn, if SQS sends them.
type KeyFunc func(m types.Message) string

// KeyOf calls f.
func (f KeyFunc) KeyOf(m types.Message) string { return f(m) }

// KeyAttribute takes the key from the message attribute of that name, of type String or Number. A
// sender must give every resend the same value. A redrive from a dead-letter queue is assumed to
// keep attributes: AWS documents a new id and send time and no loss of attributes. This was not
// tested on AWS.
func KeyAttribute(name string) KeyFrom {
	return adapter.Named[types.Message]{By: "KeyAttribute", Name: name, Of: func(m types.Message, name string) string {
		return aws.ToString(m.MessageAttributes[name].StringValue)
	}}
}

// KeyMessageID takes the message id that SQS assigned. It protects against redelivery only. A
// producer that retries its send, and a redrive from the dead-letter queue, both create a new id,
// and the effect happens again. Use it only if the sender provides no key.
func KeyMessageID() KeyFrom {
	return KeyFunc(func(m types.Message) string { return aws.ToString(m.MessageId) })
}

// KeyDeduplicationID takes the MessageDeduplicationId of a FIFO queue's message: the sender's id,
// the same for each resend at any later time. With ContentBasedDeduplication it is a hash of the
// body, so two intents with one body have one key.
//
// A message in a dead-letter queue has no key, because SQS replaces the id there by the message's
// id ("Using dead-letter queues in Amazon SQS"). After a redrive it still has an id, but a
// different one. If you redrive messages, take the key from an attribute or the body.
func KeyDeduplicationID() KeyFrom {
	return KeyFunc(func(m types.Message) string {
		if m.Attributes[string(types.MessageSystemAttributeNameDeadLetterQueueSourceArn)] != "" {
			return ""
		}
		return m.Attributes[string(types.MessageSystemAttributeNameMessageDeduplicationId)]
	})
}

// KeyS3 takes the key of an S3 event notification: event, bucket, object key, version and
// sequencer. S3 repeats these when it sends a notification again. A message with no record or
// several, such as the test event of a new notification, has no key.
func KeyS3() KeyFrom {
	return KeyFunc(func(m types.Message) string {
		var event struct {
			Records []struct {
				EventName string `json:"eventName"`
				S3        struct {
					Bucket struct{ Name string }
					Object struct{ Key, VersionID, Sequencer string }
				}
			}
		}
		if json.Unmarshal([]byte(aws.ToString(m.Body)), &event) != nil || len(event.Records) != 1 {
			return ""
		}
		r := event.Records[0]
		if r.S3.Bucket.Name == "" || r.S3.Object.Sequencer == "" {
			return ""
		}
		key := pawl.Key(r.EventName, r.S3.Bucket.Name, r.S3.Object.Key, r.S3.Object.VersionID, r.S3.Object.Sequencer)
		if len(key) <= pawl.MaxKey {
			return key
		}
		return pawl.FingerprintOf([]byte(key)).String() // object keys may have 1,024 octets
	})
}

// KeyJSON takes the key from the JSON document in the body, at an RFC 6901 pointer such as
// "/order/id". A string is the key as it is, a number as it is written (1 and 1.0 are two keys).
// Other values, and a body that is not exactly one JSON document, give no key.
func KeyJSON(pointer string) KeyFrom {
	return adapter.JSON[types.Message]{Pointer: pointer, Body: func(m types.Message) []byte { return []byte(aws.ToString(m.Body)) }}
}
