package sqstest_test

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/pawl-go/pawl/transport/pawlsqs/sqstest"
)

// These tests cover promises outside the conformance checks that need no passing time. time_test.go
// has those that do.

func TestQueue_MissingIsTyped(t *testing.T) {
	t.Parallel()
	f := direct(t, sqstest.Options{}, nil)
	_, err := f.client.GetQueueUrl(t.Context(), &sqs.GetQueueUrlInput{QueueName: aws.String("other")})
	var missing *types.QueueDoesNotExist
	if !errors.As(err, &missing) {
		t.Fatalf("got %v", err)
	}
	f.wantCode(err, "AWS.SimpleQueueService.NonExistentQueue")
	_, err = f.client.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{QueueUrl: aws.String(f.url + "x")})
	f.wantCode(err, "AWS.SimpleQueueService.NonExistentQueue")
	_, err = f.client.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{QueueUrl: aws.String("q")})
	f.wantCode(err, "InvalidAddress")
}

func TestCreateQueue_IdempotentUnlessAttributesDiffer(t *testing.T) {
	t.Parallel()
	f := direct(t, sqstest.Options{}, map[string]string{"VisibilityTimeout": "45"})
	if again := f.create("q", map[string]string{"VisibilityTimeout": "45"}); again != f.url {
		t.Fatalf("got %s, want %s", again, f.url)
	}
	_, err := f.client.CreateQueue(t.Context(), &sqs.CreateQueueInput{QueueName: aws.String("q"),
		Attributes: map[string]string{"VisibilityTimeout": "46"}})
	var exists *types.QueueNameExists
	if !errors.As(err, &exists) {
		t.Fatalf("got %v", err)
	}
}

func TestCreateQueue_Refusals(t *testing.T) {
	t.Parallel()
	f := direct(t, sqstest.Options{}, nil)
	for _, c := range []struct {
		name       string
		attributes map[string]string
		code       string
	}{
		{"q.fifo", nil, "InvalidParameterValue"},
		{"x", map[string]string{"FifoQueue": "true"}, "InvalidParameterValue"},
		{"x", map[string]string{"FifoQueue": "false"}, "InvalidAttributeName"},
		{"x", map[string]string{"ContentBasedDeduplication": "true"}, "InvalidAttributeName"},
		{"q.fifo", map[string]string{"FifoQueue": "true", "DeduplicationScope": "galaxy"}, "InvalidAttributeValue"},
		{"q.fifo", map[string]string{"FifoQueue": "true", "FifoThroughputLimit": "perMessageGroupId"}, "InvalidAttributeValue"},
		{"q.fifo", map[string]string{"FifoQueue": "true", "RedrivePolicy": `{"deadLetterTargetArn":"arn:aws:sqs:us-east-1:000000000000:q","maxReceiveCount":2}`}, "InvalidParameterValue"},
		{"no spaces", nil, "InvalidParameterValue"},
		{strings.Repeat("x", 81), nil, "InvalidParameterValue"},
		{"x", map[string]string{"VisibilityTimeout": "43201"}, "InvalidAttributeValue"},
		{"x", map[string]string{"DelaySeconds": "901"}, "InvalidAttributeValue"},
		{"x", map[string]string{"ReceiveMessageWaitTimeSeconds": "21"}, "InvalidAttributeValue"},
		{"x", map[string]string{"MessageRetentionPeriod": "59"}, "InvalidAttributeValue"},
		{"x", map[string]string{"MaximumMessageSize": "1048577"}, "InvalidAttributeValue"},
		{"x", map[string]string{"Colour": "red"}, "InvalidAttributeName"},
		{"x", map[string]string{"RedrivePolicy": `{"deadLetterTargetArn":"arn:aws:sqs:us-east-1:000000000000:none","maxReceiveCount":3}`}, "InvalidParameterValue"},
		{"x", map[string]string{"RedrivePolicy": `{"deadLetterTargetArn":"arn:aws:sqs:us-east-1:000000000000:q","maxReceiveCount":0}`}, "InvalidParameterValue"},
	} {
		_, err := f.client.CreateQueue(t.Context(), &sqs.CreateQueueInput{QueueName: &c.name, Attributes: c.attributes})
		f.wantCode(err, c.code)
	}
}

func TestQueues_ListedInPages(t *testing.T) {
	t.Parallel()
	f := direct(t, sqstest.Options{}, nil)
	for i := range 5 {
		f.create("page-"+strconv.Itoa(i), nil)
	}
	var names []string
	pages := sqs.NewListQueuesPaginator(f.client, &sqs.ListQueuesInput{QueueNamePrefix: aws.String("page-"), MaxResults: aws.Int32(2)})
	for pages.HasMorePages() {
		page, err := pages.NextPage(t.Context())
		f.must(err)
		for _, url := range page.QueueUrls {
			names = append(names, url[strings.LastIndex(url, "/")+1:])
		}
	}
	if got := strings.Join(names, " "); got != "page-0 page-1 page-2 page-3 page-4" {
		t.Fatalf("got %s", got)
	}
}

func TestAttributes_SetAndRead(t *testing.T) {
	t.Parallel()
	f := direct(t, sqstest.Options{}, nil)
	_, err := f.client.SetQueueAttributes(t.Context(), &sqs.SetQueueAttributesInput{QueueUrl: &f.url,
		Attributes: map[string]string{"VisibilityTimeout": "7", "MaximumMessageSize": "1024"}})
	f.must(err)
	out, err := f.client.GetQueueAttributes(t.Context(), &sqs.GetQueueAttributesInput{QueueUrl: &f.url,
		AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameAll}})
	f.must(err)
	for name, want := range map[string]string{"VisibilityTimeout": "7", "MaximumMessageSize": "1024", "DelaySeconds": "0",
		"MessageRetentionPeriod": "345600", "QueueArn": "arn:aws:sqs:us-east-1:000000000000:q"} {
		if out.Attributes[name] != want {
			t.Errorf("%s is %q, want %q", name, out.Attributes[name], want)
		}
	}
	_, err = f.client.SendMessage(t.Context(), &sqs.SendMessageInput{QueueUrl: &f.url, MessageBody: aws.String(strings.Repeat("x", 1025))})
	f.wantCode(err, "InvalidParameterValue")
}

// The type of a queue is set at its creation and cannot change.
func TestAttributes_TheTypeStays(t *testing.T) {
	t.Parallel()
	f := direct(t, sqstest.Options{}, nil)
	standard, fifo := f.create("s", nil), f.create("s.fifo", map[string]string{"FifoQueue": "true", "ContentBasedDeduplication": "true"})
	// has no other attribute of FIFO queues
	plain := f.create("plain.fifo", map[string]string{"FifoQueue": "true"})
	for _, c := range []struct {
		url, value string
		refused    bool
	}{{standard, "true", true}, {standard, "false", true}, {standard, "", false}, {fifo, "true", false}, {fifo, "false", true}, {fifo, "", true}, {plain, "", true}} {
		_, err := f.client.SetQueueAttributes(t.Context(), &sqs.SetQueueAttributesInput{QueueUrl: &c.url, Attributes: map[string]string{"FifoQueue": c.value, "DelaySeconds": "0"}})
		if c.refused {
			f.wantCode(err, "InvalidAttributeName")
		} else {
			f.must(err)
		}
	}
	for url, want := range map[string]string{standard: "", fifo: "true", plain: "true"} {
		out, err := f.client.GetQueueAttributes(t.Context(), &sqs.GetQueueAttributesInput{QueueUrl: &url, AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameAll}})
		f.must(err)
		if got := out.Attributes["FifoQueue"]; got != want {
			t.Errorf("%s: FifoQueue is %q, want %q", url, got, want)
		}
	}
	_, err := f.client.SendMessage(t.Context(), &sqs.SendMessageInput{QueueUrl: &fifo, MessageBody: aws.String("b"), MessageGroupId: aws.String("g")})
	f.must(err)
}

func TestAttributes_Refusals(t *testing.T) {
	t.Parallel()
	f := direct(t, sqstest.Options{}, nil)
	try := func(name, kind, value string) error {
		_, err := f.client.SendMessage(t.Context(), &sqs.SendMessageInput{QueueUrl: &f.url, MessageBody: aws.String("b"),
			MessageAttributes: map[string]types.MessageAttributeValue{name: {DataType: &kind, StringValue: &value}}})
		return err
	}
	for _, c := range [][3]string{{"AWS.x", "String", "v"}, {"amazon.x", "String", "v"}, {".x", "String", "v"},
		{"x..y", "String", "v"}, {strings.Repeat("x", 257), "String", "v"}, {"x", "Text", "v"}, {"x", "String", ""},
		{"x", "Number", "one"}, {"x", "String", "\x02"}} {
		f.wantCode(try(c[0], c[1], c[2]), "InvalidParameterValue")
	}
	digits := strings.Repeat("1234567890", 4)[:38]
	for _, number := range []string{"1.5", "0", "-0", "+1", "00000000000000000000000000000000000000000000001.50", ".5", "1.", "1e3", "-1.25E-7", digits, "0." + digits,
		"1e-128", "-1e126", "0.1e127", "1" + strings.Repeat("0", 126), "0e999"} {
		f.must(try("x", "Number.float", number))
	}
	for _, no := range []string{"NaN", "nan", "Inf", "-Infinity", "0x1p-2", "0x10", "1_000", "1,000", ".", "e5", "1e", "--1", "1 ", "\u0661", "1.2.3", "1e1.5",
		digits + "9", "1e-129", "0.01e-127", "1.1e126", "1e127", "1e99999"} {
		f.wantCode(try("x", "Number", no), "InvalidParameterValue")
	}
	many := map[string]types.MessageAttributeValue{}
	for i := range 11 {
		many[fmt.Sprint("a", i)] = types.MessageAttributeValue{DataType: aws.String("String"), StringValue: aws.String("v")}
	}
	_, err := f.client.SendMessage(t.Context(), &sqs.SendMessageInput{QueueUrl: &f.url, MessageBody: aws.String("b"), MessageAttributes: many})
	f.wantCode(err, "InvalidParameterValue")
}

func TestReceive_SystemAttributesOnRequestOnly(t *testing.T) {
	t.Parallel()
	f := direct(t, sqstest.Options{}, nil)
	trace := "Root=1-5759e988-bd862e3fe1be46a994272793"
	_, err := f.client.SendMessage(t.Context(), &sqs.SendMessageInput{QueueUrl: &f.url, MessageBody: aws.String("b"),
		// for fair queues; on a standard queue a label without order
		MessageGroupId: aws.String("tenant-7"),
		MessageSystemAttributes: map[string]types.MessageSystemAttributeValue{
			"AWSTraceHeader": {DataType: aws.String("String"), StringValue: &trace}}})
	f.must(err)
	m := f.one(0)
	want := map[string]string{"ApproximateReceiveCount": "1", "AWSTraceHeader": trace, "MessageGroupId": "tenant-7",
		"SenderId": "000000000000"}
	for name, value := range want {
		if m.Attributes[name] != value {
			t.Errorf("%s is %q, want %q", name, m.Attributes[name], value)
		}
	}
	if sent, _ := strconv.ParseInt(m.Attributes["SentTimestamp"], 10, 64); time.Since(time.UnixMilli(sent)).Abs() > time.Minute {
		t.Errorf("sent at %d", sent)
	}
	f.must(f.hide(m, 0))
	out, err := f.client.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{QueueUrl: &f.url,
		MessageSystemAttributeNames: []types.MessageSystemAttributeName{"ApproximateReceiveCount"}})
	f.must(err)
	if got := out.Messages[0].Attributes; len(got) != 1 || got["ApproximateReceiveCount"] != "2" {
		t.Errorf("got %v", got)
	}
}

func TestReceive_Refusals(t *testing.T) {
	t.Parallel()
	f := direct(t, sqstest.Options{}, nil)
	for _, change := range []func(*sqs.ReceiveMessageInput){
		func(in *sqs.ReceiveMessageInput) { in.MaxNumberOfMessages = 11 },
		func(in *sqs.ReceiveMessageInput) { in.WaitTimeSeconds = 21 },
		func(in *sqs.ReceiveMessageInput) { in.VisibilityTimeout = 43201 },
	} {
		in := poll(f.url, 0)
		change(in)
		_, err := f.client.ReceiveMessage(t.Context(), in)
		f.wantCode(err, "InvalidParameterValue")
	}
}

func TestBody_ControlCharactersRefused(t *testing.T) {
	t.Parallel()
	f := direct(t, sqstest.Options{}, nil)
	for _, body := range []string{"\x00", "a\x0bb", "\ufffe"} {
		_, err := f.client.SendMessage(t.Context(), &sqs.SendMessageInput{QueueUrl: &f.url, MessageBody: &body})
		var contents *types.InvalidMessageContents
		if !errors.As(err, &contents) {
			t.Errorf("%q: got %v", body, err)
		}
	}
	f.send("tab\tline\nreturn\r")
	_, err := f.client.SendMessage(t.Context(), &sqs.SendMessageInput{QueueUrl: &f.url, MessageBody: aws.String("")})
	f.wantCode(err, "MissingParameter")
}

func TestInFlight_OverTheLimit(t *testing.T) {
	t.Parallel()
	f := direct(t, sqstest.Options{InFlightLimit: 3}, nil)
	for range 5 {
		f.send("a")
	}
	ms := f.receive(0)
	if len(ms) != 3 {
		t.Fatalf("received %d", len(ms))
	}
	_, err := f.client.ReceiveMessage(t.Context(), poll(f.url, 0))
	var over *types.OverLimit
	if !errors.As(err, &over) {
		t.Fatalf("got %v", err)
	}
	f.must(f.delete(ms[0]))
	f.one(0)
}

func TestUnsupported_IsSaidClearly(t *testing.T) {
	t.Parallel()
	f := direct(t, sqstest.Options{}, nil)
	_, err := f.client.AddPermission(t.Context(), &sqs.AddPermissionInput{QueueUrl: &f.url, Label: &f.url, Actions: []string{"*"}, AWSAccountIds: []string{"1"}})
	var unsupported *types.UnsupportedOperation
	if !errors.As(err, &unsupported) || !strings.Contains(err.Error(), "AddPermission is not simulated") {
		t.Fatalf("got %v", err)
	}
}
