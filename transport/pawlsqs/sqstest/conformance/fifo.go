package main

import (
	"math/big"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

// sequence returns the message's sequence number, which has 128 bits.
func (p *probe) sequence(m types.Message) *big.Int {
	n, ok := new(big.Int).SetString(m.Attributes["SequenceNumber"], 10)
	if !ok {
		p.fatalf("the sequence number is %q", m.Attributes["SequenceNumber"])
	}
	return n
}

var fifoChecks = []check{
	{name: "fifo/order", says: "a group comes in the order of its sends, with group, deduplication id and growing sequence numbers", try: func(p *probe) {
		url := p.fifo()
		// enough that unordered numbers do not ascend by chance
		p.sendGroup(url, "g", strings.Fields("1 2 3 4 5 6 7 8 9 10")...)
		ms := p.order(url, "1 2 3 4 5 6 7 8 9 10")
		for i, m := range ms {
			p.equal("MessageGroupId", m.Attributes["MessageGroupId"], "g")
			p.equal("MessageDeduplicationId", m.Attributes["MessageDeduplicationId"], "g"+*m.Body)
			if i > 0 && p.sequence(m).Cmp(p.sequence(ms[i-1])) <= 0 {
				p.fatalf("sequence number %v follows %v", p.sequence(m), p.sequence(ms[i-1]))
			}
		}
	}},
	{name: "fifo/group-required", says: "a FIFO queue demands a group and a deduplication id, and refuses DelaySeconds", try: func(p *probe) {
		url := p.fifo()
		_, err := p.trySend(url, "x")
		p.code("a send without a group", err, "MissingParameter")
		_, err = p.trySend(url, "x", in("g", ""))
		p.code("a send without a deduplication id", err, "InvalidParameterValue")
		_, err = p.trySend(url, "x", in("g", "d"), func(in *sqs.SendMessageInput) { in.DelaySeconds = 1 })
		p.code("DelaySeconds", err, "InvalidParameterValue")
	}},
	{name: "fifo/name", says: "FIFO queues have names that end in .fifo, others do not", try: func(p *probe) {
		_, err := p.client.CreateQueue(p.ctx, &sqs.CreateQueueInput{QueueName: aws.String(p.prefix), Attributes: map[string]string{"FifoQueue": "true"}})
		p.code("a FIFO queue without .fifo", err, "InvalidParameterValue")
		_, err = p.client.CreateQueue(p.ctx, &sqs.CreateQueueInput{QueueName: aws.String(p.prefix + ".fifo")})
		p.code("a standard queue with .fifo", err, "InvalidParameterValue")
	}},
	{name: "fifo/deduplication", says: "the same deduplication id is one message, also after its delete", try: func(p *probe) {
		url := p.fifo()
		first := p.send(url, "x", in("g", "d"))
		second := p.send(url, "y", in("h", "d"))
		p.equal("the id of the second send", *second.MessageId, *first.MessageId)
		p.equal("its sequence number", *second.SequenceNumber, *first.SequenceNumber)
		p.must(p.delete(url, p.one(url)))
		p.send(url, "z", in("g", "d"))
		p.none(url)
	}},
	{name: "fifo/deduplication-interval", says: "five minutes later the same deduplication id is a second message", takes: 5 * time.Minute, try: func(p *probe) {
		url := p.fifo("VisibilityTimeout", "30")
		p.send(url, "x", in("g", "d"))
		p.must(p.delete(url, p.one(url)))
		p.sleep(5*time.Minute + 2*time.Second)
		p.send(url, "x", in("g", "d"))
		p.one(url)
	}},
	{name: "fifo/content-based", says: "ContentBasedDeduplication takes the body's hash, without the attributes", try: func(p *probe) {
		url := p.fifo("ContentBasedDeduplication", "true", "VisibilityTimeout", "30")
		first := p.send(url, "x", in("g", ""), with("a", text("1")))
		second := p.send(url, "x", in("g", ""), with("a", text("2")))
		p.equal("the id of the second send", *second.MessageId, *first.MessageId)
		p.one(url)
	}},
	{name: "fifo/deduplication-scope", says: "with DeduplicationScope messageGroup the same id in two groups is two messages", try: func(p *probe) {
		url := p.fifo("DeduplicationScope", "messageGroup", "VisibilityTimeout", "30")
		p.send(url, "x", in("g", "d"))
		p.send(url, "x", in("h", "d"))
		p.send(url, "x", in("h", "d"))
		p.get(url, 2)
		p.none(url)
	}},
	{name: "fifo/group-blocked", says: "while a message of a group is in flight no other of it is handed out; other groups are", try: func(p *probe) {
		url := p.fifo("VisibilityTimeout", "30")
		p.sendGroup(url, "g", "1", "2")
		first := p.order(url, "1", atMost(1))[0]
		p.sendGroup(url, "h", "3")
		p.order(url, "3")
		p.none(url)
		p.must(p.delete(url, first))
		p.order(url, "2")
	}},
	{name: "fifo/redelivery", says: "after a failure a group comes again from the failed message on, in order", try: func(p *probe) {
		url := p.fifo()
		p.sendGroup(url, "g", "1", "2", "3")
		ms := p.order(url, "1 2 3")
		p.must(p.delete(url, ms[0]))
		again := p.order(url, "2 3", waiting(5))
		p.equal("the receive count", count(again[0]), 2)
	}},
	{name: "fifo/released", says: "a released head is not overtaken by those behind it, whatever their visibility", try: func(p *probe) {
		url := p.fifo("VisibilityTimeout", "30")
		p.sendGroup(url, "g", "1", "2", "3")
		ms := p.order(url, "1 2 3")
		p.must(p.hide(url, ms[1], 0))
		p.must(p.hide(url, ms[2], 0))
		p.none(url)
		p.must(p.hide(url, ms[0], 2))
		p.order(url, "1 2 3", waiting(5))
	}},
	{name: "fifo/delete-after-expiry", says: "a FIFO queue refuses a delete after the visibility timeout", try: func(p *probe) {
		url := p.fifo()
		p.sendGroup(url, "g", "1")
		m := p.one(url)
		p.sleep(2500 * time.Millisecond)
		p.code("the delete", p.delete(url, m), "InvalidParameterValue")
		p.one(url)
	}},
	{name: "fifo/receive-attempt", says: "the same ReceiveRequestAttemptId is answered with the same messages and handles", try: func(p *probe) {
		url := p.fifo("VisibilityTimeout", "30")
		p.sendGroup(url, "g", "1", "2")
		attempt := func(in *sqs.ReceiveMessageInput) { in.ReceiveRequestAttemptId = aws.String("attempt-1") }
		first := p.order(url, "1 2", attempt)
		again := p.order(url, "1 2", attempt)
		for i := range first {
			p.equal("the handle", *again[i].ReceiptHandle, *first[i].ReceiptHandle)
		}
		p.none(url)
		p.must(p.delete(url, first[0]))
		p.must(p.delete(url, first[1]))
	}},
	{name: "fifo/dlq", says: "beyond maxReceiveCount the head goes to the FIFO dead-letter queue and its group moves on", try: func(p *probe) {
		source, dead := p.withDLQ(p.fifo, 1)
		p.sendGroup(source, "g", "poison", "next")
		id := *p.order(source, "poison", atMost(1))[0].MessageId
		p.order(source, "next", waiting(5))
		m := p.one(dead, waiting(5))
		p.equal("the id", *m.MessageId, id)
		p.equal("the body", *m.Body, "poison")
		p.equal("MessageGroupId", m.Attributes["MessageGroupId"], "g")
		p.equal("MessageDeduplicationId", m.Attributes["MessageDeduplicationId"], id)
	}},
	{name: "fifo/dlq-type", says: "the dead-letter queue of a FIFO queue is a FIFO queue", try: func(p *probe) {
		standard := p.queue()
		policy := `{"deadLetterTargetArn":"` + p.attribute(standard, types.QueueAttributeNameQueueArn) + `","maxReceiveCount":2}`
		_, err := p.client.CreateQueue(p.ctx, &sqs.CreateQueueInput{QueueName: aws.String(p.name(".fifo")), Attributes: map[string]string{
			"FifoQueue": "true", "RedrivePolicy": policy}})
		p.code("a standard dead-letter queue", err, "InvalidParameterValue")
	}},
}
