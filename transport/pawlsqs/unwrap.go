package pawlsqs

import (
	"encoding/base64"
	"encoding/json"
	"maps"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

// An Unwrap takes a message out of its envelope. One that is in no such envelope stays as it is.
type Unwrap func(types.Message) types.Message

// Names of attributes that come from envelopes.
const (
	SNSMessageID    = "sns.MessageId"           // the same when SNS tries again, another when the publisher does
	SNSTopic        = "sns.TopicArn"            //
	SNSSubject      = "sns.Subject"             // if there is one
	EventID         = "eventbridge.id"          // the same when EventBridge tries again, another when the producer does
	EventSource     = "eventbridge.source"      //
	EventDetailType = "eventbridge.detail-type" //
)

// UnwrapSNS takes the notification of an SNS topic without raw message delivery: the body becomes what was published, and the
// message attributes of the publisher become those of the message, so that [KeyAttribute] finds a key that was published.
// What changes when SNS tries again (timestamp, signature) is gone, and the fingerprint of the body stays the same. With
// raw message delivery there is nothing to unwrap.
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

// UnwrapEventBridge takes the event of an EventBridge rule or pipe without an input transformer: the body becomes its detail.
func UnwrapEventBridge(m types.Message) types.Message {
	var e struct {
		Version, ID, Source string
		DetailType          string          `json:"detail-type"`
		Detail              json.RawMessage // the exact octets
	}
	if json.Unmarshal([]byte(aws.ToString(m.Body)), &e) != nil || e.ID == "" || e.Source == "" || e.DetailType == "" || e.Detail == nil {
		return m
	}
	m.Body = aws.String(string(e.Detail))
	m.MessageAttributes = withAttributes(m, map[string]string{EventID: e.ID, EventSource: e.Source, EventDetailType: e.DetailType})
	return m
}

// withAttributes copies the attributes of a message and adds those that have a value.
func withAttributes(m types.Message, more map[string]string) map[string]types.MessageAttributeValue {
	all := maps.Clone(m.MessageAttributes)
	if all == nil {
		all = map[string]types.MessageAttributeValue{}
	}
	for name, value := range more {
		if value != "" {
			all[name] = text(value)
		}
	}
	return all
}
