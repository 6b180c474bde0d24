package sqstest_test

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/pawl-go/pawl/transport/sqs/sqstest"
)

// This file holds the promises that need no passing of time; time_test.go has the others.

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

// A batch answers for each entry on its own.
func TestSendBatch_AnswersSuccessfulAndFailed(t *testing.T) {
	t.Parallel()
	f := direct(t, sqstest.Options{}, nil)
	out, err := f.client.SendMessageBatch(t.Context(), &sqs.SendMessageBatchInput{QueueUrl: &f.url,
		Entries: []types.SendMessageBatchRequestEntry{
			{Id: aws.String("good"), MessageBody: aws.String("a")},
			{Id: aws.String("bad"), MessageBody: aws.String("\x01")},
		}})
	f.must(err)
	if len(out.Successful) != 1 || *out.Successful[0].Id != "good" || len(out.Failed) != 1 ||
		*out.Failed[0].Code != "InvalidMessageContents" || !out.Failed[0].SenderFault {
		t.Fatalf("got %+v, %+v", out.Successful, out.Failed)
	}
}

func TestBatch_Refusals(t *testing.T) {
	t.Parallel()
	f := direct(t, sqstest.Options{}, nil)
	entries := func(ids ...string) []types.DeleteMessageBatchRequestEntry {
		all := []types.DeleteMessageBatchRequestEntry{}
		for _, id := range ids {
			all = append(all, types.DeleteMessageBatchRequestEntry{Id: aws.String(id), ReceiptHandle: aws.String("h")})
		}
		return all
	}
	eleven := []string{"0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10"}
	for _, c := range []struct {
		entries []types.DeleteMessageBatchRequestEntry
		code    string
		as      any
	}{
		{entries(), "AWS.SimpleQueueService.EmptyBatchRequest", new(*types.EmptyBatchRequest)},
		{entries(eleven...), "AWS.SimpleQueueService.TooManyEntriesInBatchRequest", new(*types.TooManyEntriesInBatchRequest)},
		{entries("a", "a"), "AWS.SimpleQueueService.BatchEntryIdsNotDistinct", new(*types.BatchEntryIdsNotDistinct)},
		{entries("a b"), "AWS.SimpleQueueService.InvalidBatchEntryId", new(*types.InvalidBatchEntryId)},
	} {
		_, err := f.client.DeleteMessageBatch(t.Context(), &sqs.DeleteMessageBatchInput{QueueUrl: &f.url, Entries: c.entries})
		f.wantCode(err, c.code)
		if !errors.As(err, c.as) {
			t.Errorf("%v is no %T", err, c.as)
		}
	}
}

// The SDK does not check the digest of attributes; this one is computed by hand after the developer guide.
func TestAttributes_DigestAndFilter(t *testing.T) {
	t.Parallel()
	f := direct(t, sqstest.Options{}, nil)
	text := func(v string) types.MessageAttributeValue {
		return types.MessageAttributeValue{DataType: aws.String("String"), StringValue: &v}
	}
	out, err := f.client.SendMessage(t.Context(), &sqs.SendMessageInput{QueueUrl: &f.url, MessageBody: aws.String("b"),
		MessageAttributes: map[string]types.MessageAttributeValue{"bar.one": text("1"), "bar.two": text("2"), "baz": text("3"),
			"bin": {DataType: aws.String("Binary"), BinaryValue: []byte{0, 255}}}})
	f.must(err)
	if *out.MD5OfMessageAttributes != digest("bar.one", "String", "\x01", "1", "bar.two", "String", "\x01", "2",
		"baz", "String", "\x01", "3", "bin", "Binary", "\x02", "\x00\xff") {
		t.Fatalf("digest %s", *out.MD5OfMessageAttributes)
	}
	for _, c := range []struct {
		names []string
		want  int
	}{{nil, 0}, {[]string{"All"}, 4}, {[]string{".*"}, 4}, {[]string{"bar.*"}, 2}, {[]string{"baz"}, 1}, {[]string{"none"}, 0}} {
		in := poll(f.url, 0)
		in.MessageAttributeNames = c.names
		got, err := f.client.ReceiveMessage(t.Context(), in)
		f.must(err)
		m := got.Messages[0]
		if len(m.MessageAttributes) != c.want || (m.MD5OfMessageAttributes == nil) != (c.want == 0) {
			t.Errorf("%v: got %v, digest %v", c.names, m.MessageAttributes, m.MD5OfMessageAttributes)
		}
		if b := m.MessageAttributes["bin"].BinaryValue; c.want == 4 && string(b) != "\x00\xff" {
			t.Errorf("binary came back as %v", b)
		}
		f.must(f.hide(m, 0))
	}
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
	f.must(try("x", "Number.float", "1.5"))
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
		MessageGroupId: aws.String("tenant-7"), // fair queues: a label on a standard queue, no order
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

func TestDelete_TwiceIsFineGarbageIsNot(t *testing.T) {
	t.Parallel()
	f := direct(t, sqstest.Options{}, nil)
	f.send("a")
	m := f.one(0)
	f.must(f.delete(m))
	f.must(f.delete(m))
	err := f.delete(types.Message{ReceiptHandle: aws.String("garbage")})
	var invalid *types.ReceiptHandleIsInvalid
	if !errors.As(err, &invalid) {
		t.Fatalf("got %v", err)
	}
}

func TestDeleteBatch_FailsPerEntry(t *testing.T) {
	t.Parallel()
	f := direct(t, sqstest.Options{}, nil)
	f.send("a")
	m := f.one(0)
	out, err := f.client.DeleteMessageBatch(t.Context(), &sqs.DeleteMessageBatchInput{QueueUrl: &f.url,
		Entries: []types.DeleteMessageBatchRequestEntry{
			{Id: aws.String("0"), ReceiptHandle: m.ReceiptHandle},
			{Id: aws.String("1"), ReceiptHandle: aws.String("garbage")},
		}})
	f.must(err)
	if len(out.Successful) != 1 || len(out.Failed) != 1 || *out.Failed[0].Code != "ReceiptHandleIsInvalid" {
		t.Fatalf("got %+v %+v", out.Successful, out.Failed)
	}
}

func TestChangeVisibilityBatch_FailsPerEntry(t *testing.T) {
	t.Parallel()
	f := direct(t, sqstest.Options{}, nil)
	f.send("a")
	f.send("b")
	ms := f.receive(0)
	f.must(f.delete(ms[1]))
	out, err := f.client.ChangeMessageVisibilityBatch(t.Context(), &sqs.ChangeMessageVisibilityBatchInput{QueueUrl: &f.url,
		Entries: []types.ChangeMessageVisibilityBatchRequestEntry{
			{Id: aws.String("0"), ReceiptHandle: ms[0].ReceiptHandle, VisibilityTimeout: 60},
			{Id: aws.String("1"), ReceiptHandle: ms[1].ReceiptHandle, VisibilityTimeout: 60},
		}})
	f.must(err)
	if len(out.Successful) != 1 || len(out.Failed) != 1 || *out.Failed[0].Code != "InvalidParameterValue" ||
		!strings.Contains(*out.Failed[0].Message, "does not exist or is not available") {
		t.Fatalf("got %+v %+v", out.Successful, out.Failed)
	}
}

func TestSize_OneMebibyteAndNotMore(t *testing.T) {
	t.Parallel()
	f := direct(t, sqstest.Options{}, nil)
	f.send(strings.Repeat("x", 1<<20))
	if m := f.one(0); len(*m.Body) != 1<<20 {
		t.Fatalf("got %d octets", len(*m.Body))
	}
	_, err := f.client.SendMessage(t.Context(), &sqs.SendMessageInput{QueueUrl: &f.url,
		MessageBody: aws.String(strings.Repeat("x", 1<<20-5)), // and an attribute of 1 + 6 + 1 octets
		MessageAttributes: map[string]types.MessageAttributeValue{
			"a": {DataType: aws.String("String"), StringValue: aws.String("v")}}})
	f.wantCode(err, "InvalidParameterValue")
	half := strings.Repeat("x", 1<<19)
	_, err = f.client.SendMessageBatch(t.Context(), &sqs.SendMessageBatchInput{QueueUrl: &f.url,
		Entries: []types.SendMessageBatchRequestEntry{{Id: aws.String("0"), MessageBody: &half},
			{Id: aws.String("1"), MessageBody: aws.String(half + "x")}}})
	f.wantCode(err, "AWS.SimpleQueueService.BatchRequestTooLong")
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
	_, err := f.client.ListQueueTags(t.Context(), &sqs.ListQueueTagsInput{QueueUrl: &f.url})
	var unsupported *types.UnsupportedOperation
	if !errors.As(err, &unsupported) || !strings.Contains(err.Error(), "ListQueueTags is not simulated") {
		t.Fatalf("got %v", err)
	}
}

// Ten pollers and two thousand messages: none lost, none doubled.
func TestPollers_NoneLostNoneDoubled(t *testing.T) {
	t.Parallel()
	f := loopback(t, sqstest.Options{}, nil)
	const messages = 2000
	ctx := within(t, time.Minute)
	var mu sync.Mutex
	seen := map[string]int{}
	var pollers sync.WaitGroup
	for range 10 {
		pollers.Go(func() {
			for {
				out, err := f.client.ReceiveMessage(ctx, poll(f.url, time.Second))
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				for _, m := range out.Messages {
					seen[*m.Body]++
				}
				done := len(seen) == messages
				mu.Unlock()
				for _, m := range out.Messages {
					if err := f.delete(m); err != nil {
						t.Error(err)
					}
				}
				if done {
					return
				}
			}
		})
	}
	for i := 0; i < messages; i += 10 {
		in := &sqs.SendMessageBatchInput{QueueUrl: &f.url}
		for j := range 10 {
			in.Entries = append(in.Entries, types.SendMessageBatchRequestEntry{Id: aws.String(strconv.Itoa(j)), MessageBody: aws.String(strconv.Itoa(i + j))})
		}
		_, err := f.client.SendMessageBatch(ctx, in)
		f.must(err)
	}
	pollers.Wait()
	for body, times := range seen {
		if times != 1 {
			t.Errorf("%s came %d times", body, times)
		}
	}
	if got := f.server.Stats("q"); len(seen) != messages || got.Deleted != messages || got.Ready+got.InFlight != 0 {
		t.Fatalf("saw %d, stats %+v", len(seen), got)
	}
}
