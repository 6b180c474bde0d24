package pawlsqs_test

import (
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/transport/pawlsqs"
	"github.com/pawl-go/pawl/transport/pawlsqs/sqstest"
)

func TestKeyJSON(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ pointer, body, want string }{
		{"/id", `{"id":"a-1"}`, "a-1"},
		{"/order/id", `{"order":{"id":"a-1"}}`, "a-1"},
		{"/0/id", `[{"id":"a-1"}]`, "a-1"},
		{"/00/id", `[{"id":"a-1"}]`, ""},
		{"/1", `["a"]`, ""},
		{"/-1", `["a"]`, ""},
		{"/a~1b/c~0d", `{"a/b":{"c~d":"x"}}`, "x"},
		{"/~01", `{"~1":"x"}`, "x"},
		{"/", `{"":"x"}`, "x"},
		{"/n", `{"n":12345678901234567890}`, "12345678901234567890"},
		{"/n", `{"n":1.0}`, "1.0"},
		{"/n", `{"n":true}`, ""},
		{"/n", `{"n":null}`, ""},
		{"/n", `{"n":{}}`, ""},
		{"/n", `{"m":"x"}`, ""},
		{"/n/m", `{"n":"x"}`, ""},
		{"/n", `{"n":"x"} {}`, ""},
		{"/n", `{"n":"x"`, ""},
		{"/n", `not json`, ""},
	} {
		if got := pawlsqs.KeyJSON(c.pointer).KeyOf(types.Message{Body: &c.body}); got != c.want {
			t.Errorf("%s of %s is %q, want %q", c.pointer, c.body, got, c.want)
		}
	}
	if got := pawlsqs.KeyJSON("/id").KeyOf(types.Message{}); got != "" {
		t.Errorf("a message without a body has key %q", got)
	}
}

// Without a key in the message, Key stays empty. A guessed key would let a resend take effect
// again.
func TestKey_HasNoSilentFallback(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := setup(t, sqstest.Faults{}, pawlsqs.Config{})
		_, err := f.client.SendMessage(t.Context(), f.plain("no key"))
		f.must(err)
		d := f.one()
		if d.Key != "" || string(d.Payload) != "no key" {
			t.Fatalf("got %+v", d)
		}
		f.must(f.source.Ack(t.Context(), committed(d)...))
	})
}

// T74: a resend has another message id and the same key.
func TestT74_AResendKeepsItsKey(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := setup(t, sqstest.Faults{}, pawlsqs.Config{})
		f.send("order-1")
		f.send("order-1")
		ds := f.receive()
		if len(ds) != 2 || ds[0].MessageID == ds[1].MessageID || ds[0].Key != "order-1" || ds[1].Key != "order-1" {
			t.Fatalf("got %+v", ds)
		}
		f.must(f.source.Ack(t.Context(), committed(ds...)...))
	})
}

func TestKeyAttributeAndMessageID(t *testing.T) {
	t.Parallel()
	m := types.Message{MessageId: aws.String("id-1"), MessageAttributes: map[string]types.MessageAttributeValue{
		"k": {DataType: aws.String("Number"), StringValue: aws.String("7")},
		"b": {DataType: aws.String("Binary"), BinaryValue: []byte("x")},
	}}
	for _, c := range []struct {
		from pawlsqs.KeyFrom
		want string
	}{
		{pawlsqs.KeyAttribute("k"), "7"}, {pawlsqs.KeyAttribute("b"), ""}, {pawlsqs.KeyAttribute("none"), ""}, {pawlsqs.KeyMessageID(), "id-1"},
		{pawlsqs.KeyFunc(func(types.Message) string { return "f" }), "f"},
	} {
		if got := c.from.KeyOf(m); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}

var _ pawl.Source = (*pawlsqs.Source)(nil)
