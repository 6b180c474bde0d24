package pawlsqs_test

import (
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/pawl-go/pawl/transport/pawlsqs"
	"github.com/pawl-go/pawl/transport/pawlsqs/sqstest"
)

const notification = `{"Type":"Notification","MessageId":"m-1","TopicArn":"arn:aws:sns:us-east-1:1:orders","Subject":"new",
 "Message":"{\"id\":17}","Timestamp":"TIME","Signature":"SIG",
 "MessageAttributes":{"Idempotency-Key":{"Type":"String","Value":"order-17"},"photo":{"Type":"Binary","Value":"AAEC"}}}`

// A published message arrives as published: body, key and attributes. The fields that SNS changes
// on a retry are removed.
func TestUnwrapSNS(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := setup(t, sqstest.Faults{}, pawlsqs.Config{Unwrap: pawlsqs.UnwrapSNS})
		for _, time := range []string{"2026-01-01T00:00:00.000Z", "2026-01-02T00:00:00.000Z"} {
			_, err := f.client.SendMessage(t.Context(), f.plain(strings.NewReplacer("TIME", time, "SIG", time).Replace(notification)))
			f.must(err)
		}
		ds := f.receive()
		for _, d := range ds {
			if d.Key != "order-17" || string(d.Payload) != `{"id":17}` || d.Attributes["sns.MessageId"] != "m-1" || d.Attributes["sns.Subject"] != "new" ||
				d.Attributes["photo"+pawlsqs.BinarySuffix] != "AAEC" || d.Attributes["sns.TopicArn"] != "arn:aws:sns:us-east-1:1:orders" {
				t.Errorf("got %+v", d)
			}
		}
		f.ack(ds...)
	})
}

func TestUnwrapEventBridge(t *testing.T) {
	t.Parallel()
	body := `{"version":"0","id":"e-1","detail-type":"Order Placed","source":"shop","account":"1","time":"2026-01-01T00:00:00Z",` +
		`"region":"us-east-1","resources":[],"detail":{"id": 17, "n":1.0}}`
	m := pawlsqs.UnwrapEventBridge(types.Message{Body: &body})
	if *m.Body != `{"id": 17, "n":1.0}` || pawlsqs.KeyAttribute(pawlsqs.EventID).KeyOf(m) != "e-1" || pawlsqs.KeyJSON("/id").KeyOf(m) != "17" ||
		*m.MessageAttributes[pawlsqs.EventDetailType].StringValue != "Order Placed" || *m.MessageAttributes[pawlsqs.EventSource].StringValue != "shop" {
		t.Errorf("got %s %v", *m.Body, m.MessageAttributes)
	}
}

// A message without an envelope, or with something similar, stays as it is.
func TestUnwrap_LeavesOthersAlone(t *testing.T) {
	t.Parallel()
	for _, body := range []string{"", "text", "17", "[]", `{"id":17}`, `{"Type":"Notification"}`, `{"Type":"Notification","TopicArn":"t"}`,
		`{"Type":"SubscriptionConfirmation","TopicArn":"t","Message":"m"}`, `{"id":"1","source":"s","detail-type":"d"}`, `{"detail":{}}`} {
		for _, unwrap := range []pawlsqs.Unwrap{pawlsqs.UnwrapSNS, pawlsqs.UnwrapEventBridge} {
			m := types.Message{Body: aws.String(body), MessageAttributes: map[string]types.MessageAttributeValue{"a": {}}}
			if got := unwrap(m); *got.Body != body || len(got.MessageAttributes) != 1 {
				t.Errorf("%q became %q with %v", body, *got.Body, got.MessageAttributes)
			}
		}
	}
	if got := pawlsqs.UnwrapSNS(types.Message{}); got.Body != nil {
		t.Errorf("no body became %q", *got.Body)
	}
}

func TestKeyS3(t *testing.T) {
	t.Parallel()
	record := func(key, sequencer string) string {
		return `{"eventVersion":"2.1","eventSource":"aws:s3","eventName":"ObjectCreated:Put","eventTime":"2026-01-01T00:00:00Z",` +
			`"s3":{"bucket":{"name":"b"},"object":{"key":"` + key + `","size":1,"versionId":"v","sequencer":"` + sequencer + `"}}}`
	}
	key := func(records ...string) string {
		return pawlsqs.KeyS3().KeyOf(types.Message{Body: aws.String(`{"Records":[` + strings.Join(records, ",") + `]}`)})
	}
	first := key(record("k", "01"))
	if first == "" || first != key(record("k", "01")) {
		t.Errorf("the key is %q", first)
	}
	for name, other := range map[string]string{"object": key(record("l", "01")), "sequencer": key(record("k", "02")), "long": key(record(strings.Repeat("k", 1024), "01"))} {
		if other == "" || other == first || len(other) > 255 {
			t.Errorf("with another %s the key is %q", name, other)
		}
	}
	for _, none := range []string{key(), key(record("k", "01"), record("l", "01")), key(`{}`),
		pawlsqs.KeyS3().KeyOf(types.Message{Body: aws.String(`{"Service":"Amazon S3","Event":"s3:TestEvent"}`)})} {
		if none != "" {
			t.Errorf("the key is %q, want none", none)
		}
	}
}

// The deduplication id is the key of a message that has not been dead-lettered.
func TestKeyDeduplicationID(t *testing.T) {
	t.Parallel()
	m := types.Message{Attributes: map[string]string{"MessageDeduplicationId": "d-1"}}
	if got := pawlsqs.KeyDeduplicationID().KeyOf(m); got != "d-1" {
		t.Errorf("got %q", got)
	}
	m.Attributes["DeadLetterQueueSourceArn"] = "arn:aws:sqs:us-east-1:1:q.fifo"
	if got := pawlsqs.KeyDeduplicationID().KeyOf(m); got != "" {
		t.Errorf("a dead letter has key %q", got)
	}
}
