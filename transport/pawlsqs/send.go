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

// A Message is a message to send.
type Message struct {
	// Key names the intent, the thing that must happen once. Every resend of the same intent has
	// the same key. A consumer accepts 1 to 255 octets. Required.
	Key string
	// Payload is text of XML 1.0 characters, 1 octet to 1 MiB together with the attributes. Other
	// octets need [Sender.Base64].
	Payload []byte
	// Attributes are sent with type String. At most 8 are allowed, because the key and ProducedAt
	// take two of SQS's 10; at most 7 if the Payload is sent as base64. No value may be empty. The
	// names of the attributes that Send sets are refused. If there is room and they are not set,
	// Send adds traceparent and tracestate from the context; see [pawl.WithTrace].
	Attributes map[string]string
	// ProducedAt is the time of the intent, by the producer's clock, sent as [ProducedAtAttribute].
	// A consumer with a retention period compares it with the oldest receipt it may have purged.
	// SQS's send time does not serve, because a redrive sets it anew. Give a resend the same value.
	// Zero means the time of Send.
	ProducedAt time.Time
	// Delay hides the message at first, for 0 to 15 min, rounded up to whole seconds. With 0 the
	// queue's own DelaySeconds applies, because the SDK cannot send a zero. FIFO queues allow none.
	Delay time.Duration
	// Group is the MessageGroupId, 1 to 128 letters, digits and punctuation. A FIFO queue requires
	// it and keeps the order within it. On a standard queue it is optional: the tenant for fair
	// queues.
	Group string
}

// ProducedAtAttribute carries Message.ProducedAt in RFC 3339. A receiver finds it in
// [pawl.Delivery.ProducedAt].
const ProducedAtAttribute = "Produced-At"

const ownAttributes = 2 // the key and ProducedAt

// A Sender sends messages that carry their key, so that the receiver absorbs a producer's retry. On
// a FIFO queue the key is also the MessageDeduplicationId, or its SHA-256 if SQS would refuse it.
// For five minutes SQS drops messages with a known MessageDeduplicationId, even if the payload
// differs.
type Sender struct {
	// Base64 makes Send encode a Payload that SQS cannot carry as it is, such as protobuf or gzip,
	// and set [EncodingAttribute]; a [Source] decodes it. Default false: Send refuses such a
	// message. Set it before the first Send.
	Base64 bool

	client SendAPI
	url    string
	name   string
	fifo   bool
}

// OpenSender finds the queue as [Open] does. keyAttribute is the message attribute for the key; ""
// means [DefaultKeyAttribute], which a [Source] reads by default.
func OpenSender(ctx context.Context, client SendAPI, queue, keyAttribute string) (*Sender, error) {
	url, err := resolve(ctx, "sqs.send", client, queue)
	if err != nil {
		return nil, err
	}
	return &Sender{client: client, url: url, name: cmp.Or(keyAttribute, DefaultKeyAttribute), fifo: isFIFO(url)}, nil
}

// Send sends messages in batches of up to ten and one MiB, and checks the result of each. Entries
// that fail by a fault of the service are tried once more. If some are not known to be sent, the
// error wraps a [*SendError] that names them. Send those again: the key is the same, so it is safe.
// If SQS cannot carry a message octet for octet, or would refuse its size or a field, Send returns
// [pawl.ErrArgumentInvalid] before it sends any.
//
// On a FIFO queue a batch takes one message of each group, so that a message cannot overtake a
// failed one of its group. Messages behind a failed one are not tried and count as not sent. A few
// groups with many messages therefore need more calls.
func (s *Sender) Send(ctx context.Context, ms ...Message) error {
	for i, m := range ms {
		if err := s.check(m); err != nil {
			return adapter.BadArgument("sqs.send", "message %d: %v", i, err)
		}
	}
	ms = s.traced(ctx, ms)
	all := make([]outgoing, len(ms))
	for i, m := range ms {
		p, _ := s.parcel(m) // checked
		dedup := ""
		if s.fifo {
			dedup = deduplicationID(m.Key)
		}
		all[i] = p.outgoing(m.Group, dedup)
		all[i].entry.DelaySeconds = wholeSeconds(m.Delay)
	}
	failed := &SendError{All: len(ms)}
	for i, o := range sendAll(ctx, s.client, s.url, s.fifo, all) {
		if o.err != nil {
			failed.Unsent = append(failed.Unsent, i)
			failed.First = cmp.Or(failed.First, o.err)
		}
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

// A SendError names the messages of a Send that are not known to be sent.
type SendError struct {
	All    int   // messages of the call
	Unsent []int // indexes of those, ascending
	First  error // error of the first

	_ struct{} // literals name their members, so that more can be added
}

// Error names the counts and the first error.
func (e *SendError) Error() string {
	return fmt.Sprintf("%d of %d messages not sent: %v", len(e.Unsent), e.All, e.First)
}

// Unwrap returns the first error.
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
		return errors.New("has no Group, which a FIFO queue requires")
	case m.Group != "" && !validDeduplicationID.MatchString(m.Group):
		return fmt.Errorf("has the Group %q, allowed are 1 to 128 letters, digits and punctuation", m.Group)
	case s.fifo && m.Delay > 0:
		return errors.New("has a Delay, which FIFO queues do not support")
	}
	_, err := s.parcel(m)
	return err
}

func (s *Sender) parcel(m Message) (parcel, error) {
	attributes := make(map[string]string, len(m.Attributes)+ownAttributes)
	maps.Copy(attributes, m.Attributes)
	attributes[s.name], attributes[ProducedAtAttribute] = m.Key, m.producedAt().Format(time.RFC3339Nano)
	return parcelOf(m.Payload, attributes, s.Base64)
}

// traced adds the trace of ctx to messages without one, if SQS has room for it.
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

// An outgoing message is an entry of SendMessageBatch, and its size.
type outgoing struct {
	entry types.SendMessageBatchRequestEntry
	size  int
}

// outgoing makes the entry of a parcel. "" means no group or no deduplication id.
func (p parcel) outgoing(group, dedup string) outgoing {
	o := outgoing{types.SendMessageBatchRequestEntry{MessageBody: &p.body, MessageAttributes: p.messageAttributes()}, p.size()}
	if group != "" {
		o.entry.MessageGroupId = &group
	}
	if dedup != "" {
		o.entry.MessageDeduplicationId = &dedup
	}
	return o
}

var errBehind = errors.New("a message before it in its group was not sent")

// sendAll sends messages and returns one result for each. Entries that fail by a fault of the
// service are tried twice. On a FIFO queue nothing is sent behind a failed message of its group.
func sendAll(ctx context.Context, client SendAPI, url string, fifo bool, all []outgoing) []entryResult {
	results, failed := make([]entryResult, len(all)), map[string]bool{}
	left := make([]int, len(all))
	for i := range left {
		left[i] = i
	}
	call := func(ctx context.Context, ids []string, batch []int) (batchResponse, error) {
		in := &awssqs.SendMessageBatchInput{QueueUrl: &url}
		for i, n := range batch {
			one := all[n].entry
			one.Id = &ids[i]
			in.Entries = append(in.Entries, one)
		}
		return callSend(ctx, client, in)
	}
	for len(left) > 0 {
		var batch []int
		batch, left = nextBatch(all, left, fifo)
		for i, o := range twice(ctx, batch, call) {
			results[batch[i]] = o
			if o.err != nil && fifo {
				failed[*all[batch[i]].entry.MessageGroupId] = true
			}
		}
		left = slices.DeleteFunc(left, func(i int) bool {
			behind := fifo && failed[*all[i].entry.MessageGroupId]
			if behind {
				results[i] = entryResult{err: errBehind, again: true}
			}
			return behind
		})
	}
	return results
}

// lookAhead is how many messages nextBatch examines to fill a batch.
const lookAhead = 1000

// nextBatch returns the indexes of the next batch's messages and of those left after it. On a FIFO
// queue it takes one message of each group.
func nextBatch(all []outgoing, indexes []int, fifo bool) (batch, left []int) {
	busy := map[string]bool{}
	size := 0
	for n, i := range indexes {
		if len(batch) == maxBatch || n == lookAhead {
			return batch, append(left, indexes[n:]...)
		}
		group := aws.ToString(all[i].entry.MessageGroupId)
		if fifo && busy[group] {
			left = append(left, i)
			continue
		}
		if size += all[i].size; size > MaxSize {
			return batch, append(left, indexes[n:]...)
		}
		busy[group] = true
		batch = append(batch, i)
	}
	return batch, left
}

var validDeduplicationID = regexp.MustCompile("^[A-Za-z0-9!\"#$%&'()*+,./:;<=>?@\\[\\\\\\]^_`{|}~-]{1,128}$")

// deduplicationID is the key, or its hash if SQS would refuse it (SendMessage: 1 to 128 letters,
// digits and punctuation).
func deduplicationID(key string) string {
	if validDeduplicationID.MatchString(key) {
		return key
	}
	return pawl.FingerprintOf([]byte(key)).String()
}

func text(value string) types.MessageAttributeValue {
	return types.MessageAttributeValue{DataType: aws.String("String"), StringValue: &value}
}
