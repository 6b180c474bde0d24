package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

var queueChecks = []check{
	{name: "queue/missing", says: "a queue that does not exist is QueueDoesNotExist", try: func(p *probe) {
		_, err := p.client.GetQueueUrl(p.ctx, &sqs.GetQueueUrlInput{QueueName: aws.String(p.prefix + "-none")})
		typed[*types.QueueDoesNotExist](p, "GetQueueUrl", err)
		p.code("GetQueueUrl", err, "AWS.SimpleQueueService.NonExistentQueue")
	}},
	{name: "queue/create-again", says: "CreateQueue is idempotent, and refused with differing attributes", try: func(p *probe) {
		url := p.queue()
		name := url[strings.LastIndex(url, "/")+1:]
		p.equal("the second URL", p.create(name, "VisibilityTimeout", "2"), url)
		_, err := p.client.CreateQueue(p.ctx, &sqs.CreateQueueInput{QueueName: &name, Attributes: map[string]string{"VisibilityTimeout": "3"}})
		typed[*types.QueueNameExists](p, "another VisibilityTimeout", err)
	}},
	{name: "queue/attributes", says: "attributes are set, read back and bounded", try: func(p *probe) {
		url := p.queue()
		set := func(name, value string) error {
			_, err := p.client.SetQueueAttributes(p.ctx, &sqs.SetQueueAttributesInput{QueueUrl: &url, Attributes: map[string]string{name: value}})
			return err
		}
		p.must(set("DelaySeconds", "7"))
		p.equal("DelaySeconds", p.attribute(url, "DelaySeconds"), "7")
		p.code("VisibilityTimeout 43201", set("VisibilityTimeout", "43201"), "InvalidAttributeValue")
		p.code("the attribute Colour", set("Colour", "red"), "InvalidAttributeName")
	}},
	{name: "queue/counts", says: "ApproximateNumberOfMessages, NotVisible and Delayed follow the messages", try: func(p *probe) {
		url := p.queue("VisibilityTimeout", "60")
		for range 3 {
			p.send(url, "x")
		}
		p.send(url, "x", func(in *sqs.SendMessageInput) { in.DelaySeconds = 900 })
		p.get(url, 1, atMost(1))
		p.counts(url, "2 1 1")
	}},
	{name: "queue/purge", says: "PurgeQueue takes all messages, in flight included, once a minute", try: func(p *probe) {
		url := p.queue()
		p.send(url, "a")
		p.send(url, "b")
		m := p.get(url, 1, atMost(1))[0]
		purge := func() error {
			_, err := p.client.PurgeQueue(p.ctx, &sqs.PurgeQueueInput{QueueUrl: &url})
			return err
		}
		p.must(purge())
		p.code("the second PurgeQueue", purge(), "AWS.SimpleQueueService.PurgeQueueInProgress")
		p.counts(url, "0 0 0")
		p.sleep(3 * time.Second)
		p.none(url)
		_ = p.delete(url, m) // the message is gone: any response will do
	}},
	{name: "dlq/after-max-receives", says: "beyond maxReceiveCount a message is in the dead-letter queue, with id and body", try: func(p *probe) {
		source, dead := p.withDLQ(p.queue, 2)
		id := *p.send(source, "poison", with("Idempotency-Key", text("k-1"))).MessageId
		p.equal("the first receive count", count(p.one(source)), 1)
		p.equal("the second receive count", count(p.one(source, waiting(5))), 2)
		p.sleep(2500 * time.Millisecond)
		p.none(source)
		m := p.one(dead, waiting(5))
		p.equal("the id", *m.MessageId, id)
		p.equal("the body", *m.Body, "poison")
		p.equal("the key attribute", *m.MessageAttributes["Idempotency-Key"].StringValue, "k-1")
		p.equal("DeadLetterQueueSourceArn", m.Attributes["DeadLetterQueueSourceArn"], p.attribute(source, "QueueArn"))
	}},
	{name: "dlq/move-task", says: "StartMessageMoveTask sends dead letters back: new id, receive count 1, attributes kept", try: func(p *probe) {
		source, dead := p.withDLQ(p.queue, 1)
		id := *p.send(source, "poison", with("Idempotency-Key", text("k-1"))).MessageId
		p.one(source)
		p.sleep(2500 * time.Millisecond)
		p.none(source)
		p.counts(dead, "1 0 0")
		p.move(dead)
		m := p.one(source, waiting(5))
		if *m.MessageId == id {
			p.fatalf("the redriven message has the id it had")
		}
		p.equal("the receive count", count(m), 1)
		p.equal("the body", *m.Body, "poison")
		p.equal("the key attribute", *m.MessageAttributes["Idempotency-Key"].StringValue, "k-1")
	}},
	{name: "pollers/none-lost", says: "ten pollers and 2,000 messages: none lost, none doubled", try: pollers},
}

func (p *probe) move(dead string) {
	arn := p.attribute(dead, "QueueArn")
	_, err := p.client.StartMessageMoveTask(p.ctx, &sqs.StartMessageMoveTaskInput{SourceArn: &arn})
	p.must(err)
	for range 60 {
		out, err := p.client.ListMessageMoveTasks(p.ctx, &sqs.ListMessageMoveTasksInput{SourceArn: &arn})
		p.must(err)
		if len(out.Results) > 0 && *out.Results[0].Status == "COMPLETED" {
			return
		}
		p.sleep(time.Second)
	}
	p.fatalf("the move task does not complete")
}

func pollers(p *probe) {
	const messages, polls = 2000, 10
	url := p.queue("VisibilityTimeout", "120")
	for i := 0; i < messages; i += 10 {
		batch := &sqs.SendMessageBatchInput{QueueUrl: &url}
		for n := range 10 {
			batch.Entries = append(batch.Entries, types.SendMessageBatchRequestEntry{Id: aws.String(fmt.Sprint(n)), MessageBody: aws.String(fmt.Sprint(i + n))})
		}
		_, err := p.client.SendMessageBatch(p.ctx, batch)
		p.must(err)
	}
	type result struct {
		bodies []string
		err    error
	}
	results := make(chan result, polls)
	for range polls {
		go func() {
			var r result
			defer func() { results <- r }()
			for {
				ms, err := p.tryReceive(url, waiting(2))
				if r.err = err; err != nil || len(ms) == 0 {
					return
				}
				done := &sqs.DeleteMessageBatchInput{QueueUrl: &url}
				for i, m := range ms {
					r.bodies = append(r.bodies, *m.Body)
					done.Entries = append(done.Entries, types.DeleteMessageBatchRequestEntry{Id: aws.String(fmt.Sprint(i)), ReceiptHandle: m.ReceiptHandle})
				}
				if _, r.err = p.client.DeleteMessageBatch(p.ctx, done); r.err != nil {
					return
				}
			}
		}()
	}
	seen := map[string]int{}
	for range polls {
		r := <-results
		p.must(r.err)
		for _, body := range r.bodies {
			seen[body]++
		}
	}
	for body, times := range seen {
		if times != 1 {
			p.fatalf("message %s came %d times", body, times)
		}
	}
	p.equal("the number of messages received", len(seen), messages)
}
