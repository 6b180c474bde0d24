package main

import (
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

var timeChecks = []check{
	{name: "poll/waits", says: "a long poll on an empty queue waits and comes back empty", try: func(p *probe) {
		url := p.queue()
		start := time.Now()
		if ms := p.receive(url, waiting(3)); len(ms) > 0 {
			p.fatalf("received %d messages", len(ms))
		}
		p.took(start, 3*time.Second)
	}},
	{name: "poll/wakes", says: "a long poll ends when a message is sent, visible again, or no longer delayed", try: func(p *probe) {
		url := p.queue()
		start := time.Now()
		sent := make(chan error, 1)
		time.AfterFunc(2*time.Second, func() {
			_, err := p.trySend(url, "x")
			sent <- err
		})
		m := p.one(url, waiting(10))
		p.must(<-sent)
		p.took(start, 2*time.Second)
		p.one(url, waiting(10))
		p.took(start, 4*time.Second) // after 2 s of visibility
		_ = m
	}},
	{name: "poll/queue-default", says: "ReceiveMessageWaitTimeSeconds applies to receives without a wait", try: func(p *probe) {
		url := p.queue("ReceiveMessageWaitTimeSeconds", "2")
		start := time.Now()
		p.receive(url, waiting(0))
		p.took(start, 2*time.Second)
	}},
	{name: "visibility/expiry", says: "after its visibility timeout a message comes again: count 2, a new handle", try: func(p *probe) {
		url := p.queue()
		id := p.send(url, "x").MessageId
		first := p.one(url)
		p.none(url)
		second := p.one(url, waiting(5))
		p.equal("the id", *second.MessageId, *id)
		p.equal("the receive count", count(second), 2)
		if *first.ReceiptHandle == *second.ReceiptHandle {
			p.fatalf("the handle is the same")
		}
	}},
	{name: "visibility/change", says: "ChangeMessageVisibility extends from now, and 0 makes visible at once", try: func(p *probe) {
		url := p.queue()
		p.send(url, "x")
		m := p.one(url)
		p.must(p.hide(url, m, 5))
		p.sleep(3 * time.Second)
		p.none(url)
		p.must(p.hide(url, m, 0))
		start := time.Now()
		again := p.one(url, waiting(5))
		p.took(start, 0)
		p.equal("the receive count", count(again), 2)
	}},
	{name: "visibility/not-in-flight", says: "a change is refused when the message is not in flight", try: func(p *probe) {
		url := p.queue()
		p.send(url, "x")
		m := p.one(url)
		p.sleep(2500 * time.Millisecond)
		p.code("the change", p.hide(url, m, 60), "InvalidParameterValue")
	}},
	{name: "visibility/ceiling", says: "a timeout beyond twelve hours from the receive is refused, not cut", try: func(p *probe) {
		url := p.queue()
		p.send(url, "x")
		m := p.one(url, hiding(60)) // stays in flight longer than the changes take
		p.code("43,201 s", p.hide(url, m, 43201), "InvalidParameterValue")
		p.sleep(1500 * time.Millisecond)
		p.code("43,200 s, 1.5 s after the receive,", p.hide(url, m, 43200), "InvalidParameterValue")
		p.must(p.hide(url, m, 43190))
	}},
	{name: "visibility/twelve-hours", says: "twelve hours after its receive a handle has expired", takes: 12 * time.Hour, try: func(p *probe) {
		url := p.queue()
		p.send(url, "x")
		m := p.one(url, hiding(43200))
		p.sleep(12*time.Hour + time.Second)
		p.code("the delete", p.delete(url, m), "InvalidParameterValue")
		p.one(url)
	}},
	{name: "delete/superseded", says: "a delete with an older handle is answered with OK and the message stays", try: func(p *probe) {
		url := p.queue()
		p.send(url, "x")
		first := p.one(url)
		second := p.one(url, waiting(5))
		if err := p.delete(url, first); err != nil {
			p.fatalf("the delete with the older handle: %v", err)
		}
		p.sleep(2500 * time.Millisecond)
		if m := p.one(url, waiting(5)); *m.MessageId != *second.MessageId {
			p.fatalf("another message came")
		}
	}},
	{name: "delete/after-expiry", says: "a standard queue deletes after the timeout unless the message was received again", try: func(p *probe) {
		url := p.queue()
		p.send(url, "x")
		m := p.one(url)
		p.sleep(2500 * time.Millisecond)
		p.must(p.delete(url, m))
		p.none(url)
	}},
	{name: "delete/twice", says: "deleting twice is fine, an invalid handle is an error", try: func(p *probe) {
		standard, fifo := p.queue("VisibilityTimeout", "30"), p.fifo("VisibilityTimeout", "30")
		p.send(standard, "x")
		p.sendGroup(fifo, "g", "x")
		for _, url := range []string{standard, fifo} {
			m := p.one(url)
			p.must(p.delete(url, m))
			if err := p.delete(url, m); err != nil {
				p.fatalf("the second delete: %v", err)
			}
			err := p.delete(url, types.Message{ReceiptHandle: aws.String("garbage")})
			typed[*types.ReceiptHandleIsInvalid](p, "an invalid handle", err)
		}
	}},
	{name: "retention", says: "a message older than the retention period is gone", takes: time.Minute, try: func(p *probe) {
		url := p.queue("MessageRetentionPeriod", "60")
		p.send(url, "x")
		p.sleep(62 * time.Second)
		p.none(url)
	}},
	{name: "receive/bounds", says: "more than 10 messages, 20 s or 12 h are refused", try: func(p *probe) {
		url := p.queue()
		for _, c := range []struct {
			call   string
			change func(*sqs.ReceiveMessageInput)
		}{{"11 messages", atMost(11)}, {"a wait of 21 s", waiting(21)}, {"a visibility of 43,201 s", hiding(43201)}} {
			_, err := p.tryReceive(url, c.change)
			p.code(c.call, err, "InvalidParameterValue")
		}
	}},
}
