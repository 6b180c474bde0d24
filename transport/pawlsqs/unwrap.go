package pawlsqs

import (
	"encoding/base64"
	"encoding/json"
	"maps"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

// An Unwrap removes the envelope of a message. A message without that envelope stays as it is.
type Unwrap func(types.Message) types.Message

// Names of the attributes that come from envelopes.
const (
	SNSMessageID = "sns.MessageId" // the same when SNS retries, another when the publisher does
	SNSTopic     = "sns.TopicArn"  // the topic's ARN
	SNSSubject   = "sns.Subject"   // the notification's subject, if it has one
	// the same when EventBridge retries, another when the producer does
	EventID         = "eventbridge.id"
	EventSource     = "eventbridge.source"      // such as "aws.s3"
	EventDetailType = "eventbridge.detail-type" // such as "Object Created"
)

// UnwrapSNS unwraps the notification of an SNS topic without raw message delivery. The body becomes
// the published message, and the publisher's message attributes are added to the message's, so
// [KeyAttribute] finds a published key. SNS's timestamp and signature change when it retries. They
// are dropped, so the fingerprint of the body stays the same. Raw message delivery needs no
// unwrapping.
func UnwrapSNS(m types.Message) types.Message {
	var e struct {
		Type, MessageId, TopicArn, Subject string
		Message                            *string
		MessageAttributes                  map[string]struct{ Type, Value string }
	}
	if json.Unmarshal([]byte(aws.ToString(m.Body)), &e) != nil || e.Type != "Notification" || e.TopicArn == "" || e.Message == nil {
		return m
	}
	m.Body = e.Message
	m.MessageAttributes = withAttributes(m, map[string]string{SNSMessageID: e.MessageId, SNSTopic: e.TopicArn, SNSSubject: e.Subject})
	for name, a := range e.MessageAttributes {
		if a.Type != "Binary" {
			m.MessageAttributes[name] = text(a.Value)
		} else if octets, err := base64.StdEncoding.DecodeString(a.Value); err == nil {
			m.MessageAttributes[name] = types.MessageAttributeValue{DataType: aws.String("Binary"), BinaryValue: octets}
		}
	}
	return m
}

// UnwrapEventBridge unwraps the event of an EventBridge rule or pipe without an input transformer.
// The body becomes the event's detail.
func UnwrapEventBridge(m types.Message) types.Message {
	var e struct {
		Version, ID, Source string
		DetailType          string          `json:"detail-type"`
		Detail              json.RawMessage // kept as received
	}
	if json.Unmarshal([]byte(aws.ToString(m.Body)), &e) != nil || e.ID == "" || e.Source == "" || e.DetailType == "" || e.Detail == nil {
		return m
	}
	m.Body = aws.String(string(e.Detail))
	m.MessageAttributes = withAttributes(m, map[string]string{EventID: e.ID, EventSource: e.Source, EventDetailType: e.DetailType})
	return m
}

// withAttributes copies the attributes of a message and adds those of more that are not empty.
func withAttributes(m types.Message, more map[string]string) map[string]types.MessageAttributeValue {
	all := map[string]types.MessageAttributeValue{}
	maps.Copy(all, m.MessageAttributes)
	for name, value := range more {
		if value != "" {
			all[name] = text(value)
		}
	}
	return all
}
