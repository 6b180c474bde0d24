package sqs

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/pawl-go/pawl"
)

// A Message is what a producer sends.
type Message struct {
	// Key names the intent; a resend of the same intent has the same key. Required.
	Key string
	// Body is the payload: text of XML 1.0 characters, 1 octet to 1 MiB with the attributes.
	Body []byte
	// Attributes are sent with type String; at most 9, as the key is one of SQS's 10. No value may be empty.
	// One with the name of the key attribute is replaced by Key.
	Attributes map[string]string
	// Delay hides the message at first: 0 to 15 min, rounded up to whole seconds. With 0 the queue's own DelaySeconds
	// applies, as the SDK cannot send a zero.
	Delay time.Duration
}

// A Sender sends messages that carry their key, so that a producer's retry is absorbed by the receiver.
type Sender struct {
	client SendAPI
	url    string
	name   string
}

// OpenSender finds the queue as [Open] does. keyAttribute is the message attribute for the key; "" means
// [DefaultKeyAttribute], which the receiver's default looks at.
func OpenSender(ctx context.Context, client SendAPI, queue, keyAttribute string) (*Sender, error) {
	url, err := resolve(ctx, "sqs.send", client, queue)
	if err != nil {
		return nil, err
	}
	return &Sender{client: client, url: url, name: cmp.Or(keyAttribute, DefaultKeyAttribute)}, nil
}

// Send sends messages in batches of up to ten and one MiB, and checks the answer for each. Entries that fail by the
// service's fault are tried once more. All messages are tried; the error wraps a [*SendError] that names those not
// known to be sent. Sending them again is safe: the key is the same.
func (s *Sender) Send(ctx context.Context, ms ...Message) error {
	for i, m := range ms {
		if err := m.check(); err != nil {
			return badArgument("sqs.send", "message %d: %v", i, err)
		}
	}
	failed := &SendError{All: len(ms)}
	for from := 0; from < len(ms); {
		n := s.fits(ms[from:])
		s.sendBatch(ctx, ms, from, n, failed)
		from += n
	}
	if len(failed.Unsent) == 0 {
		return nil
	}
	err := &pawl.Error{Op: "sqs.send", Err: failed, Hint: "send the messages named in SendError again, with the same keys"}
	if known, ok := wrap("sqs.send", s.url, failed.First).(*pawl.Error); ok && known.Hint != "" {
		failed.First, err.Hint = known.Err, known.Hint
	}
	return err
}

// A SendError says which messages of a Send are not known to be sent.
type SendError struct {
	All    int   // messages of the call
	Unsent []int // their indexes, ascending
	First  error // why the first failed
}

// Error names counts and the first reason.
func (e *SendError) Error() string {
	return fmt.Sprintf("%d of %d messages not sent: %v", len(e.Unsent), e.All, e.First)
}

// Unwrap returns the first reason.
func (e *SendError) Unwrap() error { return e.First }

func (m Message) check() error {
	switch {
	case m.Key == "":
		return fmt.Errorf("has no key")
	case len(m.Attributes) >= MaxAttributes:
		return fmt.Errorf("has %d attributes, allowed are %d beside the key", len(m.Attributes), MaxAttributes-1)
	case m.Delay < 0 || m.Delay > MaxDelay:
		return fmt.Errorf("has a delay of %v, allowed are 0 to 15m", m.Delay)
	}
	return nil
}

// fits counts how many of the first messages go into one batch; at least one, which SQS may refuse for its size.
func (s *Sender) fits(ms []Message) int {
	size := 0
	for i, m := range ms {
		size += len(m.Body) + len(s.name) + len("String") + len(m.Key)
		for name, value := range m.Attributes {
			size += len(name) + len("String") + len(value)
		}
		if i == MaxBatch || i > 0 && size > MaxSize {
			return i
		}
	}
	return len(ms)
}

// sendBatch sends the n messages from index from on, and once more those that failed by the service's fault.
func (s *Sender) sendBatch(ctx context.Context, ms []Message, from, n int, failed *SendError) {
	batch := make([]entry, n)
	for i := range batch {
		batch[i].message = from + i
	}
	for i, o := range twice(ctx, batch, func(ctx context.Context, ids []string, entries []entry) (answered, error) {
		return s.call(ctx, ms, ids, entries)
	}) {
		if o.err != nil {
			if failed.First == nil {
				failed.First = o.err
			}
			failed.Unsent = append(failed.Unsent, from+i)
		}
	}
}

func (s *Sender) call(ctx context.Context, ms []Message, ids []string, entries []entry) (answered, error) {
	in := &awssqs.SendMessageBatchInput{QueueUrl: &s.url}
	for i, e := range entries {
		m := ms[e.message]
		attributes := map[string]types.MessageAttributeValue{}
		for name, value := range m.Attributes {
			attributes[name] = text(value)
		}
		attributes[s.name] = text(m.Key)
		in.Entries = append(in.Entries, types.SendMessageBatchRequestEntry{Id: &ids[i],
			MessageBody: aws.String(string(m.Body)), MessageAttributes: attributes, DelaySeconds: wholeSeconds(m.Delay)})
	}
	out, err := s.client.SendMessageBatch(ctx, in)
	if err != nil {
		return answered{}, err
	}
	reply := answered{failed: out.Failed}
	for _, done := range out.Successful {
		reply.successful = append(reply.successful, aws.ToString(done.Id))
	}
	return reply, nil
}

func text(value string) types.MessageAttributeValue {
	return types.MessageAttributeValue{DataType: aws.String("String"), StringValue: &value}
}
