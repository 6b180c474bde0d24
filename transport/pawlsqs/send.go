package pawlsqs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/transport/internal/adapter"
)

// A Message is what a producer sends.
type Message struct {
	// Key names the intent; a resend of the same intent has the same key. Required.
	Key string
	// Payload is text of XML 1.0 characters, 1 octet to 1 MiB with the attributes. Other octets need [Sender.Base64].
	Payload []byte
	// Attributes are sent with type String; at most 8, as the key and ProducedAt are two of SQS's 10, and 7 beside a Payload that is sent
	// as base64. No value may be empty, and none may have the name of those that are set here. As far as there is room, the trace of the context joins them, as traceparent and
	// tracestate, unless they have one; see [pawl.WithTrace].
	Attributes map[string]string
	// ProducedAt is when the intent came to be, by the producer's clock, sent as [ProducedAtAttribute]. A consumer that forgets
	// compares it with what it remembers, as SQS's own send time starts anew with a redrive. A resend has the same one. Zero:
	// the time of Send.
	ProducedAt time.Time
	// Delay hides the message at first: 0 to 15 min, rounded up to whole seconds. With 0 the queue's own DelaySeconds
	// applies, as the SDK cannot send a zero. FIFO queues know none.
	Delay time.Duration
	// Group is the MessageGroupId: on a FIFO queue required, what must stay in order; on a standard queue optional, the
	// tenant for fair queues. 1 to 128 letters, digits and punctuation.
	Group string
}

// ProducedAtAttribute carries Message.ProducedAt, in RFC 3339; a receiver finds it in [pawl.Delivery.ProducedAt].
const ProducedAtAttribute = "Produced-At"

const ownAttributes = 2 // the key and ProducedAt

// A Sender sends messages that carry their key, so that a producer's retry is absorbed by the receiver. On a FIFO queue the
// key is the MessageDeduplicationId as well (its SHA-256 where SQS would refuse it): for five minutes SQS drops what has a
// known one, whatever its payload.
type Sender struct {
	// Base64 sends a Payload that SQS cannot carry as it is, such as protobuf or gzip, encoded, and says so in the attribute
	// [EncodingAttribute]; a [Source] decodes it. Default false: Send refuses such a message. Set it before the first Send.
	Base64 bool

	client SendAPI
	url    string
	name   string
	fifo   bool
}

// OpenSender finds the queue as [Open] does. keyAttribute is the message attribute for the key; "" means
// [DefaultKeyAttribute], which the receiver's default looks at.
func OpenSender(ctx context.Context, client SendAPI, queue, keyAttribute string) (*Sender, error) {
	url, err := resolve(ctx, "sqs.send", client, queue)
	if err != nil {
		return nil, err
	}
	return &Sender{client: client, url: url, name: cmp.Or(keyAttribute, DefaultKeyAttribute), fifo: isFIFO(url)}, nil
}

// Send sends messages in batches of up to ten and one MiB, and checks the answer for each. Entries that fail by the
// service's fault are tried once more. All messages are tried; the error wraps a [*SendError] that names those not
// known to be sent. Sending them again is safe: the key is the same. One that SQS cannot carry octet for octet, or would refuse for its
// size or for a field, is refused here (P4004), before any is sent.
//
// To a FIFO queue a batch takes one message of each group, so that one that fails is not overtaken by the next of its group;
// those behind a failed one are not tried and count as not sent. Messages of few groups therefore need more calls.
func (s *Sender) Send(ctx context.Context, ms ...Message) error {
	for i, m := range ms {
		if err := s.check(m); err != nil {
			return adapter.BadArgument("sqs.send", "message %d: %v", i, err)
		}
	}
	ms = s.traced(ctx, ms)
	parcels := make([]parcel, len(ms))
	for i, m := range ms {
		parcels[i], _ = s.parcel(m) // checked
	}
	failed := &SendError{All: len(ms)}
	left := make([]int, len(ms))
	for i := range left {
		left[i] = i
	}
	for len(left) > 0 {
		var batch []int
		batch, left = s.next(ms, parcels, left, failed)
		s.sendBatch(ctx, ms, parcels, batch, failed)
	}
	slices.Sort(failed.Unsent)
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

	groups map[string]bool // of which one was not sent
}

func (e *SendError) add(i int, group string, err error) {
	if e.First == nil {
		e.First, e.groups = err, map[string]bool{}
	}
	e.Unsent = append(e.Unsent, i)
	e.groups[group] = true
}

// Error names counts and the first reason.
func (e *SendError) Error() string {
	return fmt.Sprintf("%d of %d messages not sent: %v", len(e.Unsent), e.All, e.First)
}

// Unwrap returns the first reason.
func (e *SendError) Unwrap() error { return e.First }

func (s *Sender) check(m Message) error {
	_, hasKey := m.Attributes[s.name]
	_, hasTime := m.Attributes[ProducedAtAttribute]
	_, hasEncoding := m.Attributes[EncodingAttribute]
	switch {
	case m.Key == "":
		return errors.New("has no key")
	case len(m.Attributes) > maxAttributes-ownAttributes:
		return fmt.Errorf("has %d attributes, allowed are %d beside the key and ProducedAt", len(m.Attributes), maxAttributes-ownAttributes)
	case hasKey, hasTime, hasEncoding:
		return fmt.Errorf("has an attribute that Send sets itself: %s, %s or %s", s.name, ProducedAtAttribute, EncodingAttribute)
	case m.Delay < 0 || m.Delay > maxDelay:
		return fmt.Errorf("has a delay of %v, allowed are 0 to 15m", m.Delay)
	case s.fifo && m.Group == "":
		return errors.New("has no Group, which a FIFO queue demands")
	case m.Group != "" && !validDeduplicationID.MatchString(m.Group):
		return fmt.Errorf("has the Group %q, allowed are 1 to 128 letters, digits and punctuation", m.Group)
	case s.fifo && m.Delay > 0:
		return errors.New("has a Delay, which FIFO queues do not know")
	}
	_, err := s.parcel(m)
	return err
}

// parcel is what is sent of a message.
func (s *Sender) parcel(m Message) (parcel, error) {
	attributes := make(map[string]string, len(m.Attributes)+ownAttributes)
	maps.Copy(attributes, m.Attributes)
	attributes[s.name], attributes[ProducedAtAttribute] = m.Key, m.producedAt().Format(time.RFC3339Nano)
	return parcelOf(m.Payload, attributes, s.Base64)
}

// traced adds the trace of ctx to the messages that have none, as far as SQS has room for it.
func (s *Sender) traced(ctx context.Context, ms []Message) []Message {
	t := pawl.TraceOf(ctx)
	if !t.Valid() {
		return ms
	}
	ms = slices.Clone(ms)
	for i, m := range ms {
		if _, given := m.Attributes[traceParent]; given {
			continue
		}
		if m = m.with(traceParent, t.Parent); s.check(m) != nil {
			continue
		}
		ms[i] = m
		if m = m.with(traceState, t.State); t.State != "" && s.check(m) == nil {
			ms[i] = m
		}
	}
	return ms
}

func (m Message) with(name, value string) Message {
	all := make(map[string]string, len(m.Attributes)+1)
	maps.Copy(all, m.Attributes)
	all[name] = value
	m.Attributes = all
	return m
}

// The attributes of W3C Trace Context.
const traceParent, traceState = "traceparent", "tracestate"

func (m Message) producedAt() time.Time {
	if m.ProducedAt.IsZero() {
		return time.Now().UTC()
	}
	return m.ProducedAt.UTC()
}

// lookAhead is how many messages behind the first may fill its batch, where groups keep others out.
const lookAhead = 1000

// next picks the messages of the next batch by their indexes, and those that are left after it. Behind a message of a group
// that is in the batch or has failed, no other of the group goes.
func (s *Sender) next(ms []Message, parcels []parcel, all []int, failed *SendError) (batch, left []int) {
	busy := map[string]bool{}
	size := 0
	for n, i := range all {
		m := ms[i]
		switch {
		case len(batch) == maxBatch || n == lookAhead:
			return batch, append(left, all[n:]...)
		case s.fifo && failed.groups[m.Group]:
			failed.Unsent = append(failed.Unsent, i)
			continue
		case s.fifo && busy[m.Group]:
			left = append(left, i)
			continue
		}
		if size += parcels[i].size(); size > MaxSize {
			return batch, append(left, all[n:]...)
		}
		busy[m.Group] = true
		batch = append(batch, i)
	}
	return batch, left
}

// sendBatch sends the messages of a batch, and once more those that failed by the service's fault.
func (s *Sender) sendBatch(ctx context.Context, ms []Message, parcels []parcel, batch []int, failed *SendError) {
	entries := make([]entry, len(batch))
	for i := range batch {
		entries[i].message = batch[i]
	}
	for i, o := range twice(ctx, entries, func(ctx context.Context, ids []string, entries []entry) (batchAnswer, error) {
		return s.call(ctx, ms, parcels, ids, entries)
	}) {
		if o.err != nil {
			failed.add(batch[i], ms[batch[i]].Group, o.err)
		}
	}
}

func (s *Sender) call(ctx context.Context, ms []Message, parcels []parcel, ids []string, entries []entry) (batchAnswer, error) {
	in := &awssqs.SendMessageBatchInput{QueueUrl: &s.url}
	for i, e := range entries {
		m, p := ms[e.message], parcels[e.message]
		out := types.SendMessageBatchRequestEntry{Id: &ids[i],
			MessageBody: &p.body, MessageAttributes: p.messageAttributes(), DelaySeconds: wholeSeconds(m.Delay)}
		if m.Group != "" {
			out.MessageGroupId = &m.Group
		}
		if s.fifo {
			out.MessageDeduplicationId = aws.String(deduplicationID(m.Key))
		}
		in.Entries = append(in.Entries, out)
	}
	return callSend(ctx, s.client, in)
}

var validDeduplicationID = regexp.MustCompile("^[A-Za-z0-9!\"#$%&'()*+,./:;<=>?@\\[\\\\\\]^_`{|}~-]{1,128}$")

// deduplicationID is the key, or its hash if SQS would not take it (SendMessage: 1 to 128 letters, digits and punctuation).
func deduplicationID(key string) string {
	if validDeduplicationID.MatchString(key) {
		return key
	}
	return pawl.FingerprintOf([]byte(key)).String()
}

func text(value string) types.MessageAttributeValue {
	return types.MessageAttributeValue{DataType: aws.String("String"), StringValue: &value}
}
