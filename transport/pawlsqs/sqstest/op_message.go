package sqstest

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"
)

type sendRequest struct {
	Id                      string // of a batch entry
	MessageBody             string
	DelaySeconds            *int
	MessageAttributes       map[string]attribute
	MessageSystemAttributes map[string]attribute
	MessageGroupId          string
	MessageDeduplicationId  string
}

type sendResult struct {
	Id                           string `json:",omitempty"`
	MessageId                    string
	MD5OfMessageBody             string
	MD5OfMessageAttributes       string `json:",omitempty"`
	MD5OfMessageSystemAttributes string `json:",omitempty"`
	SequenceNumber               string `json:",omitempty"`
}

func (q *queue) sendMessage(_ *request, in *sendRequest) (any, *Error) {
	result, failed := q.send(in)
	if failed != nil {
		return nil, failed
	}
	return result, nil
}

func (q *queue) send(in *sendRequest) (sendResult, *Error) {
	q.mu.Lock()
	set := q.set
	q.mu.Unlock()
	delay, failed := checkSend(in, set)
	if failed != nil {
		return sendResult{}, failed
	}
	now := time.Now()
	m := &message{id: newID(), body: in.MessageBody, attributes: in.MessageAttributes, group: in.MessageGroupId,
		dedup: in.MessageDeduplicationId, sent: now, trace: in.MessageSystemAttributes["AWSTraceHeader"].value()}
	result := sendResult{
		Id: in.Id, MessageId: m.id, MD5OfMessageBody: bodyMD5(m.body),
		MD5OfMessageAttributes:       attributesMD5(in.MessageAttributes),
		MD5OfMessageSystemAttributes: attributesMD5(in.MessageSystemAttributes),
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.deleted {
		return sendResult{}, noSuchQueue()
	}
	if q.fifo != nil {
		if first, found := q.fifo.seen(m, set.dedupPerGroup, now); found {
			q.stats.Deduplicated++
			result.MessageId, result.SequenceNumber = first.id, sequenceNumber(first.sequence)
			return result, nil
		}
	}
	q.insert(m, delay, now)
	q.stats.Sent++
	if q.fifo != nil {
		q.fifo.remember(m, set.dedupPerGroup, now)
		result.SequenceNumber = sequenceNumber(m.sequence)
	}
	return result, nil
}

// checkSend applies the rules of SendMessage and returns the delay to use.
func checkSend(in *sendRequest, set settings) (time.Duration, *Error) {
	switch {
	case in.MessageBody == "":
		return 0, missing("MessageBody")
	case size(in.MessageBody, in.MessageAttributes) > set.maxSize:
		return 0, invalidValue("One or more parameters are invalid. Reason: Message must be shorter than %d bytes.",
			set.maxSize)
	case !allowedText(in.MessageBody):
		return 0, failure("InvalidMessageContents", "", "Invalid characters found. Valid unicode characters are "+
			"#x9 | #xA | #xD | #x20 to #xD7FF | #xE000 to #xFFFD | #x10000 to #x10FFFF")
	}
	if failed := checkFIFO(in, set); failed != nil {
		return 0, failed
	}
	if failed := checkAttributes(in.MessageAttributes); failed != nil {
		return 0, failed
	}
	for name, a := range in.MessageSystemAttributes {
		if name != "AWSTraceHeader" || a.DataType != "String" {
			return 0, invalidValue("Message system attribute name '%s' is invalid.", name)
		}
	}
	delay := secondsOr(in.DelaySeconds, set.delay)
	if delay < 0 || delay > maxDelay {
		return 0, invalidParameter(*in.DelaySeconds, "DelaySeconds", "DelaySeconds must be >= 0 and <= 900.")
	}
	return delay, nil
}

// newID makes a random UUID, version 4, the form of SQS message ids.
func newID() string {
	var b [16]byte
	rand.Read(b[:])
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

type receiveResult struct {
	Messages []receivedMessage `json:",omitempty"`
}

func (q *queue) receiveMessage(r *request, in *receiveRequest) (any, *Error) {
	p, failed := q.newPoll(in)
	if failed != nil {
		return nil, failed
	}
	faults := q.server.faults.Load()
	p.sampled = p.wait == 0 && faults.Empty != nil && faults.Empty(r.call)
	p.max = faults.fewer(r.call, p.max)
	client := r.ctx
	ctx := client
	if faults.AbandonedPolls {
		ctx = abandoned(client)
	}
	messages, failed := q.receive(ctx, p, in)
	if failed != nil {
		return nil, failed
	}
	if client.Err() != nil && len(messages) > 0 {
		q.mu.Lock()
		q.stats.Abandoned += int64(len(messages))
		q.mu.Unlock()
	}
	return receiveResult{messages}, nil
}

// abandoned returns a context that outlives the client but ends with the listener.
func abandoned(client context.Context) context.Context {
	if life, ok := client.Value(baseKey{}).(context.Context); ok {
		return life
	}
	return context.WithoutCancel(client)
}

type handleRequest struct {
	Id                string // of a batch entry
	ReceiptHandle     string
	VisibilityTimeout *int
}

func (q *queue) deleteMessage(_ *request, in *handleRequest) (any, *Error) {
	return nothing{}, q.deleteOne(in)
}

func (q *queue) deleteOne(in *handleRequest) *Error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.delete(in.ReceiptHandle, time.Now())
}

func (q *queue) changeMessageVisibility(_ *request, in *handleRequest) (any, *Error) {
	return nothing{}, q.changeOne(in)
}

func (q *queue) changeOne(in *handleRequest) *Error {
	if in.VisibilityTimeout == nil {
		return missing("VisibilityTimeout")
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.changeVisibility(in.ReceiptHandle, *in.VisibilityTimeout, time.Now())
}
