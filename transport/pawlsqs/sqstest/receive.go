package sqstest

import (
	"container/list"
	"context"
	"slices"
	"strconv"
	"strings"
	"time"
)

type receiveRequest struct {
	QueueUrl                    string
	AttributeNames              []string // the older name of MessageSystemAttributeNames
	MessageSystemAttributeNames []string
	MessageAttributeNames       []string
	MaxNumberOfMessages         *int
	VisibilityTimeout           *int
	WaitTimeSeconds             *int
	ReceiveRequestAttemptId     string
}

type receivedMessage struct {
	MessageId, ReceiptHandle, MD5OfBody, Body string
	Attributes                                map[string]string    `json:",omitempty"`
	MessageAttributes                         map[string]attribute `json:",omitempty"`
	MD5OfMessageAttributes                    string               `json:",omitempty"`
}

// poll is a receive with its defaults applied.
type poll struct {
	max        int
	visibility time.Duration
	wait       time.Duration
	attempt    string // ReceiveRequestAttemptId
	sampled    bool   // Faults.Empty: this short poll sampled empty servers
}

func (q *queue) newPoll(r *receiveRequest) (poll, *Error) {
	q.mu.Lock()
	set := q.set
	q.mu.Unlock()
	p := poll{max: or(r.MaxNumberOfMessages, 1), visibility: secondsOr(r.VisibilityTimeout, set.visibility),
		wait: secondsOr(r.WaitTimeSeconds, set.wait), attempt: r.ReceiveRequestAttemptId}
	switch {
	case p.attempt != "" && (q.fifo == nil || !validFIFOID(p.attempt)):
		return p, invalidParameter(p.attempt, "ReceiveRequestAttemptId", "The request include parameter that is not valid for this queue type.")
	case p.max < 1 || p.max > maxBatch:
		return p, invalidParameter(p.max, "MaxNumberOfMessages", "Must be between 1 and 10, if provided.")
	case p.visibility < 0 || p.visibility > maxVisibility:
		return p, invalidParameter(*r.VisibilityTimeout, "VisibilityTimeout", "Must be between 0 and 43200, if provided.")
	case p.wait < 0 || p.wait > maxWait:
		return p, invalidParameter(*r.WaitTimeSeconds, "WaitTimeSeconds", "Must be >= 0 and <= 20, if provided.")
	}
	return p, nil
}

// receive takes messages, or waits for the first until the poll's wait or ctx ends. It renders them
// before it unlocks the queue, so that the counts and handles are those of this receive.
func (q *queue) receive(ctx context.Context, p poll, r *receiveRequest) ([]receivedMessage, *Error) {
	var over <-chan time.Time
	if p.wait > 0 {
		timer := time.NewTimer(p.wait)
		defer timer.Stop()
		over = timer.C
	}
	for {
		messages, ticket, failed := q.tryTake(p, r)
		if failed != nil || len(messages) > 0 || p.wait <= 0 {
			return messages, failed
		}
		select {
		case <-ticket.Value.(chan struct{}):
		case <-ctx.Done():
		case <-over:
			p.wait = 0 // try once more: a message may be due at this very instant
		}
		woken := !q.giveUp(ticket)
		if ctx.Err() != nil {
			if woken {
				q.passOn()
			}
			return nil, nil
		}
	}
}

// tryTake tries once. If there is nothing to take, a long poll gets a ticket: its place among the
// waiting polls.
func (q *queue) tryTake(p poll, r *receiveRequest) ([]receivedMessage, *list.Element, *Error) {
	dlq := q.deadLetterQueue()
	q.mu.Lock()
	now := time.Now()
	if q.deleted {
		q.mu.Unlock()
		return nil, nil, noSuchQueue()
	}
	q.advance(now)
	room := q.server.inFlightLimit - q.inFlight
	// a FIFO queue returns nothing instead ("Amazon SQS FIFO queue quotas")
	if room <= 0 && q.fifo == nil {
		q.mu.Unlock()
		return nil, nil, overLimit()
	}
	if p.sampled {
		q.mu.Unlock()
		return nil, nil, nil
	}
	var taken, dead []*message
	if p.attempt != "" {
		taken = q.repeat(p.attempt, p.visibility, now)
	}
	if len(taken) == 0 {
		taken, dead = q.take(min(p.max, room), p.visibility, dlq != nil, now)
		if p.attempt != "" && len(taken) > 0 {
			q.fifo.attempted(p.attempt, taken, now)
		}
	}
	messages := q.render(taken, r)
	var ticket *list.Element
	if len(taken) == 0 && p.wait > 0 {
		ticket = q.waiters.PushBack(make(chan struct{}))
	}
	q.mu.Unlock()
	if dlq != nil {
		dlq.adopt(dead, q.arn, now)
	}
	return messages, ticket, nil
}

// giveUp reports whether the poll was still waiting. If not, it consumed a wake-up.
func (q *queue) giveUp(ticket *list.Element) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	select {
	case <-ticket.Value.(chan struct{}):
		return false
	default:
		q.waiters.Remove(ticket)
		return true
	}
}

// passOn gives a wake-up that this poll cannot use to the next poll.
func (q *queue) passOn() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.wake()
}

// adopt stores dead letters of another queue. A standard queue keeps id, body, send time and
// receive count ("Setting up dead-letter queue retention"). That the id stays is a common
// assumption, documented nowhere we found. In a FIFO queue the send time starts anew, and the
// message's id becomes its deduplication id.
func (q *queue) adopt(dead []*message, source string, now time.Time) {
	if len(dead) == 0 {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, m := range dead {
		m.source = source
		if q.fifo != nil {
			m.sent, m.dedup = now, m.id
		}
		q.insert(m, 0, now)
	}
}

// deadLetterQueue is nil if there is none or it no longer exists. Messages then stay in this queue.
func (q *queue) deadLetterQueue() *queue {
	q.mu.Lock()
	target := q.set.redrive.DeadLetterTargetArn
	q.mu.Unlock()
	if target == "" {
		return nil
	}
	return q.server.byARN(target)
}

func (q *queue) render(taken []*message, r *receiveRequest) []receivedMessage {
	rendered := make([]receivedMessage, 0, len(taken))
	system := append(slices.Clone(r.AttributeNames), r.MessageSystemAttributeNames...)
	for _, m := range taken {
		one := receivedMessage{MessageId: m.id, ReceiptHandle: m.handle, Body: m.body, MD5OfBody: bodyMD5(m.body)}
		one.Attributes = q.systemAttributes(m, system)
		one.MessageAttributes = chosen(m.attributes, r.MessageAttributeNames)
		one.MD5OfMessageAttributes = attributesMD5(one.MessageAttributes)
		rendered = append(rendered, one)
	}
	return rendered
}

// systemAttributes follows MessageSystemAttributeNames of ReceiveMessage.
func (q *queue) systemAttributes(m *message, names []string) map[string]string {
	known := map[string]string{
		"SenderId":                         q.server.account,
		"SentTimestamp":                    strconv.FormatInt(m.sent.UnixMilli(), 10),
		"ApproximateReceiveCount":          strconv.Itoa(m.receives),
		"ApproximateFirstReceiveTimestamp": strconv.FormatInt(m.first.UnixMilli(), 10),
		"AWSTraceHeader":                   m.trace,
		"MessageGroupId":                   m.group,
		"MessageDeduplicationId":           m.dedup,
		"DeadLetterQueueSourceArn":         m.source,
	}
	if q.fifo != nil {
		known["SequenceNumber"] = sequenceNumber(m.sequence)
	}
	all := slices.Contains(names, "All")
	wanted := map[string]string{}
	for name, value := range known {
		if value != "" && (all || slices.Contains(names, name)) {
			wanted[name] = value
		}
	}
	return wanted
}

// chosen follows MessageAttributeNames of ReceiveMessage: names, All, .* or a prefix such as bar.*
func chosen(attributes map[string]attribute, names []string) map[string]attribute {
	picked := map[string]attribute{}
	for name, a := range attributes {
		if slices.ContainsFunc(names, func(pattern string) bool { return matches(pattern, name) }) {
			picked[name] = a
		}
	}
	return picked
}

func matches(pattern, name string) bool {
	if pattern == "All" || pattern == ".*" || pattern == name {
		return true
	}
	prefix, isPrefix := strings.CutSuffix(pattern, ".*")
	return isPrefix && strings.HasPrefix(name, prefix)
}
