package main

import (
	"crypto/md5"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

const mebibyte = 1 << 20

var messageChecks = []check{
	{name: "message/round-trip", says: "a message is sent, received and deleted; the SDK verifies its digest", try: func(p *probe) {
		url := p.queue()
		id := p.send(url, "hello, wörld \U0001F600").MessageId
		m := p.one(url)
		p.equal("the id", *m.MessageId, *id)
		p.equal("the body", *m.Body, "hello, wörld \U0001F600")
		p.must(p.delete(url, m))
		p.sleep(3 * time.Second)
		p.none(url)
	}},
	{name: "message/attributes", says: "attributes of three types arrive, with their digest, filtered by name and prefix", try: func(p *probe) {
		url := p.queue("VisibilityTimeout", "0")
		out := p.send(url, "b", with("bar.one", text("1")), with("bar.two", types.MessageAttributeValue{DataType: aws.String("Number"), StringValue: aws.String("2")}),
			with("baz", types.MessageAttributeValue{DataType: aws.String("Binary"), BinaryValue: []byte{0, 255}}))
		p.equal("the digest", aws.ToString(out.MD5OfMessageAttributes), digest("bar.one", "String", "\x01", "1", "bar.two", "Number", "\x01", "2", "baz", "Binary", "\x02", "\x00\xff"))
		for names, want := range map[string]int{"All": 3, ".*": 3, "bar.*": 2, "baz": 1, "none": 0} {
			m := p.one(url, func(in *sqs.ReceiveMessageInput) { in.MessageAttributeNames = []string{names} })
			p.equal("the number of attributes for "+names, len(m.MessageAttributes), want)
			if b, there := m.MessageAttributes["baz"]; there {
				p.equal("the Binary attribute", string(b.BinaryValue), "\x00\xff")
			}
		}
	}},
	{name: "message/system-attributes", says: "system attributes come on request only, the trace header with them", try: func(p *probe) {
		url := p.queue("VisibilityTimeout", "0")
		trace := "Root=1-5759e988-bd862e3fe1be46a994272793"
		p.send(url, "b", func(in *sqs.SendMessageInput) {
			in.MessageSystemAttributes = map[string]types.MessageSystemAttributeValue{"AWSTraceHeader": {DataType: aws.String("String"), StringValue: &trace}}
		})
		m := p.one(url)
		p.equal("AWSTraceHeader", m.Attributes["AWSTraceHeader"], trace)
		for _, name := range []string{"SenderId", "SentTimestamp", "ApproximateFirstReceiveTimestamp"} {
			if m.Attributes[name] == "" {
				p.fatalf("%s is missing", name)
			}
		}
		m = p.one(url, func(in *sqs.ReceiveMessageInput) {
			in.MessageSystemAttributeNames = []types.MessageSystemAttributeName{"ApproximateReceiveCount"}
		})
		p.equal("the number of system attributes", len(m.Attributes), 1)
	}},
	{name: "message/group-on-standard", says: "MessageGroupId on a standard queue is a label: it arrives and blocks no message", try: func(p *probe) {
		url := p.queue()
		for range 2 {
			p.send(url, "x", func(in *sqs.SendMessageInput) { in.MessageGroupId = aws.String("tenant-7") })
		}
		first := p.one(url, atMost(1))
		p.equal("MessageGroupId", first.Attributes["MessageGroupId"], "tenant-7")
		p.one(url, atMost(1))
	}},
	{name: "message/size", says: "one MiB is accepted, an octet more is refused, attributes included", try: func(p *probe) {
		url := p.queue()
		p.send(url, strings.Repeat("x", mebibyte))
		_, err := p.trySend(url, strings.Repeat("x", mebibyte+1))
		p.code("a body of an octet more", err, "InvalidParameterValue")
		_, err = p.trySend(url, strings.Repeat("x", mebibyte-5), with("a", text("v")))
		p.code("a body that an attribute makes too large", err, "InvalidParameterValue")
	}},
	{name: "message/characters", says: "control characters are refused, tabs and line ends are not", try: func(p *probe) {
		url := p.queue()
		p.send(url, "tab\tline\nreturn\r")
		_, err := p.trySend(url, "\x0b")
		typed[*types.InvalidMessageContents](p, "a control character", err)
	}},
	{name: "delay/message", says: "DelaySeconds hides a message at first", try: func(p *probe) {
		url := p.queue()
		start := time.Now()
		p.send(url, "x", func(in *sqs.SendMessageInput) { in.DelaySeconds = 3 })
		p.none(url)
		p.one(url, waiting(5))
		p.took(start, 3*time.Second)
	}},
	{name: "delay/queue", says: "the queue's DelaySeconds applies to messages without their own", try: func(p *probe) {
		url := p.queue("DelaySeconds", "3")
		start := time.Now()
		p.send(url, "x")
		p.one(url, waiting(5))
		p.took(start, 3*time.Second)
	}},
	{name: "batch/send", says: "SendMessageBatch answers Successful and Failed", try: func(p *probe) {
		url := p.queue()
		out, err := p.client.SendMessageBatch(p.ctx, &sqs.SendMessageBatchInput{QueueUrl: &url, Entries: []types.SendMessageBatchRequestEntry{
			{Id: aws.String("good"), MessageBody: aws.String("a")}, {Id: aws.String("bad"), MessageBody: aws.String("\x01")}}})
		p.must(err)
		if len(out.Successful) != 1 || *out.Successful[0].Id != "good" || len(out.Failed) != 1 || *out.Failed[0].Id != "bad" {
			p.fatalf("%d successful, %d failed", len(out.Successful), len(out.Failed))
		}
		p.equal("SenderFault", out.Failed[0].SenderFault, true)
	}},
	{name: "batch/limits", says: "batches of 0 and 11, repeated ids and malformed ids have codes of their own", try: func(p *probe) {
		url := p.queue()
		try := func(ids ...string) error {
			in := &sqs.DeleteMessageBatchInput{QueueUrl: &url, Entries: []types.DeleteMessageBatchRequestEntry{}}
			for _, id := range ids {
				in.Entries = append(in.Entries, types.DeleteMessageBatchRequestEntry{Id: aws.String(id), ReceiptHandle: aws.String("h")})
			}
			_, err := p.client.DeleteMessageBatch(p.ctx, in)
			return err
		}
		typed[*types.EmptyBatchRequest](p, "an empty batch", try())
		typed[*types.TooManyEntriesInBatchRequest](p, "a batch of 11", try(strings.Fields("0 1 2 3 4 5 6 7 8 9 10")...))
		typed[*types.BatchEntryIdsNotDistinct](p, "a repeated id", try("a", "a"))
		typed[*types.InvalidBatchEntryId](p, "a malformed id", try("a b"))
	}},
	{name: "batch/size", says: "a batch of more than one MiB is refused whole", try: func(p *probe) {
		url := p.queue()
		half := strings.Repeat("x", mebibyte/2)
		_, err := p.client.SendMessageBatch(p.ctx, &sqs.SendMessageBatchInput{QueueUrl: &url, Entries: []types.SendMessageBatchRequestEntry{
			{Id: aws.String("0"), MessageBody: &half}, {Id: aws.String("1"), MessageBody: aws.String(half + "x")}}})
		typed[*types.BatchRequestTooLong](p, "the batch", err)
	}},
	{name: "batch/delete", says: "DeleteMessageBatch fails per entry", try: func(p *probe) {
		url := p.queue()
		p.send(url, "a")
		m := p.one(url)
		out, err := p.client.DeleteMessageBatch(p.ctx, &sqs.DeleteMessageBatchInput{QueueUrl: &url, Entries: []types.DeleteMessageBatchRequestEntry{
			{Id: aws.String("0"), ReceiptHandle: m.ReceiptHandle}, {Id: aws.String("1"), ReceiptHandle: aws.String("garbage")}}})
		p.must(err)
		if len(out.Successful) != 1 || len(out.Failed) != 1 || *out.Failed[0].Code != "ReceiptHandleIsInvalid" {
			p.fatalf("%d successful, %d failed", len(out.Successful), len(out.Failed))
		}
	}},
	{name: "batch/change-visibility", says: "ChangeMessageVisibilityBatch fails per entry", try: func(p *probe) {
		url := p.queue("VisibilityTimeout", "30")
		p.send(url, "a")
		p.send(url, "b")
		ms := p.get(url, 2)
		p.must(p.delete(url, ms[1]))
		in := &sqs.ChangeMessageVisibilityBatchInput{QueueUrl: &url}
		for i, m := range ms {
			in.Entries = append(in.Entries, types.ChangeMessageVisibilityBatchRequestEntry{Id: aws.String(fmt.Sprint(i)), ReceiptHandle: m.ReceiptHandle, VisibilityTimeout: 60})
		}
		out, err := p.client.ChangeMessageVisibilityBatch(p.ctx, in)
		p.must(err)
		if len(out.Successful) != 1 || len(out.Failed) != 1 || *out.Failed[0].Id != "1" {
			p.fatalf("%d successful, %d failed", len(out.Successful), len(out.Failed))
		}
	}},
}

// digest is the digest of message attributes, from name, type, transport octet and value of each.
// See "Calculating the MD5 message digest for message attributes".
func digest(parts ...string) string {
	h := md5.New()
	for i, part := range parts {
		if i%4 != 2 {
			h.Write(binary.BigEndian.AppendUint32(nil, uint32(len(part))))
		}
		h.Write([]byte(part))
	}
	return hex.EncodeToString(h.Sum(nil))
}
