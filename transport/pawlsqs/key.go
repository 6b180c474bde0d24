package pawlsqs

import (
	"encoding/json"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/transport/internal/adapter"
)

// DefaultKeyAttribute is the message attribute that carries the key unless something else is said.
const DefaultKeyAttribute = "Idempotency-Key"

// KeyFrom finds the idempotency key of a message: the sender's name for the intent, the same for every resend.
// It answers "" for a message that carries none.
type KeyFrom interface {
	KeyOf(m types.Message) string
}

// KeyFunc makes a [KeyFrom] of a function, for keys that are somewhere else. Beside body and message attributes a message has
// the system attributes ApproximateReceiveCount, SentTimestamp, MessageGroupId, MessageDeduplicationId and
// DeadLetterQueueSourceArn, where SQS knows them.
type KeyFunc func(m types.Message) string

// KeyOf calls f.
func (f KeyFunc) KeyOf(m types.Message) string { return f(m) }

// KeyAttribute takes the key from the message attribute of that name, of type String or Number. A sender gives every
// resend the same one. That a redrive from a dead-letter queue keeps attributes is assumed: AWS documents the new id
// and send time, and nothing about attributes being dropped; it was not tried.
func KeyAttribute(name string) KeyFrom {
	return adapter.Named[types.Message]{By: "KeyAttribute", Name: name, Of: func(m types.Message, name string) string {
		return aws.ToString(m.MessageAttributes[name].StringValue)
	}}
}

// KeyMessageID takes the id that SQS gave the message. It protects against redelivery, not against resend or
// redrive: a producer that retries its send and a redrive from the dead-letter queue both make a new id, and the
// effect happens again. Use it only where no key can be had from the sender.
func KeyMessageID() KeyFrom {
	return KeyFunc(func(m types.Message) string { return aws.ToString(m.MessageId) })
}

// KeyDeduplicationID takes the MessageDeduplicationId of a FIFO queue's message: what the sender gave, the same for each of
// its resends, however late. With ContentBasedDeduplication it is a hash of the body, so two intents with one body are one.
//
// A message that has been in a dead-letter queue has no key: there SQS replaces the id by the message's id ("Using dead-letter
// queues in Amazon SQS"). A redriven one still looks as if it had a key, and it is another one: use this only where nothing is
// redriven, and an attribute or the body otherwise.
func KeyDeduplicationID() KeyFrom {
	return KeyFunc(func(m types.Message) string {
		if m.Attributes[string(types.MessageSystemAttributeNameDeadLetterQueueSourceArn)] != "" {
			return ""
		}
		return m.Attributes[string(types.MessageSystemAttributeNameMessageDeduplicationId)]
	})
}

// KeyS3 takes the key of an S3 event notification: event, bucket, object key, version and sequencer, which S3 repeats when
// it sends a notification again. A message with several records, or none, such as the test event of a new notification, has
// no key.
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
		if len(key) <= maxKey {
			return key
		}
		return pawl.FingerprintOf([]byte(key)).String() // object keys may have 1,024 octets
	})
}

// maxKey is how long a key may be; see [pawl.Intent].
const maxKey = 255

// KeyJSON takes the key from the JSON document in the body, at an RFC 6901 pointer such as "/order/id". A string is
// the key as it is, a number as it is written (1 and 1.0 are two keys). Anything else, or a body that is not one JSON
// document, has no key.
func KeyJSON(pointer string) KeyFrom {
	return adapter.JSON[types.Message]{Pointer: pointer, Body: func(m types.Message) []byte { return []byte(aws.ToString(m.Body)) }}
}
