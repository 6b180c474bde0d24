package pawlsqs

import (
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/transport/internal/adapter"
)

// Identify finds the key of a stored delivery with the present [Config.Key], after [Config.Unwrap];
// see [pawl.Identifier]. The message that Key sees has the body, id and message attributes of the
// one received. Of the system attributes it has SentTimestamp, ApproximateReceiveCount and
// MessageGroupId. [KeyDeduplicationID] therefore finds nothing, and the key found at first stays.
func (s *Source) Identify(d pawl.Delivery) pawl.Delivery {
	now := s.delivery(messageOf(d), time.Time{})
	now.Receives, now.SentAt, now.Log, now.Offset = d.Receives, d.SentAt, d.Log, d.Offset
	now.OrderingKey = d.OrderingKey // a Source of another queue may identify it, so the group stays
	now.SemanticKey, now.VerifiedBy, now.Fingerprint, now.Handle = d.SemanticKey, d.VerifiedBy, d.Fingerprint, d.Handle
	if now.ProducedAt.IsZero() {
		now.ProducedAt = d.ProducedAt
	}
	return now
}

// Identify does what [Source.Identify] does.
func (b *LambdaBatch) Identify(d pawl.Delivery) pawl.Delivery {
	return (&Source{config: b.config}).Identify(d)
}

// messageOf rebuilds the message of a delivery, already decoded, as far as the delivery holds it.
func messageOf(d pawl.Delivery) types.Message {
	m := types.Message{MessageId: aws.String(d.MessageID), Body: aws.String(string(d.Payload)), MessageAttributes: map[string]types.MessageAttributeValue{},
		Attributes: map[string]string{string(types.MessageSystemAttributeNameApproximateReceiveCount): strconv.Itoa(d.Receives)}}
	if !d.SentAt.IsZero() {
		m.Attributes[string(types.MessageSystemAttributeNameSentTimestamp)] = strconv.FormatInt(d.SentAt.UnixMilli(), 10)
	}
	if d.OrderingKey != "" {
		m.Attributes[string(types.MessageSystemAttributeNameMessageGroupId)] = d.OrderingKey
	}
	for name, value := range d.Attributes {
		if base, octets, binary := adapter.Binary(name, value); binary {
			m.MessageAttributes[base] = types.MessageAttributeValue{DataType: aws.String("Binary"), BinaryValue: octets}
			continue
		}
		m.MessageAttributes[name] = text(value)
	}
	return m
}
