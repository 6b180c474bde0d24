package sqs

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/aws/smithy-go"

	"github.com/pawl-go/pawl"
)

// A Sink publishes the events of an outbox to a queue, standard or FIFO: give it to outbox.Config.
//
// The event's id is the key attribute, so that a [Source] behind the queue recognises a second delivery. In a FIFO queue the
// aggregate is the message group, and the id is the deduplication id; an event without an aggregate is a group of its own.
//
// SQS takes ten attributes. Sent are the key attribute, pawl-event-id, ce-id, ce-source, ce-specversion, ce-type and, if there
// is one, traceparent; then the event's own headers by their names, three at least; then, as long as there is room,
// ce-subject, ce-time, content-type and tracestate. An event with more headers of its own than fit, an empty payload, or one
// that SQS cannot carry, becomes a dead letter at once.
type Sink struct {
	client SendAPI
	url    string
	name   string
	fifo   bool
}

// OpenSink finds the queue as [Open] does; a name or URL that ends in .fifo is a FIFO queue. keyAttribute is the message
// attribute for the event's id; "" means [DefaultKeyAttribute], which the receiver's default looks at.
func OpenSink(ctx context.Context, client SendAPI, queue, keyAttribute string) (*Sink, error) {
	const op = "sqs.sink"
	s := &Sink{client: client, name: cmp.Or(keyAttribute, DefaultKeyAttribute), fifo: strings.HasSuffix(queue, ".fifo")}
	var err error
	s.url, err = resolve(ctx, op, client, queue)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Publish implements [pawl.Sink]. What SQS refuses as a whole, or by its own fault, is the sink's failure and charged to nobody.
func (s *Sink) Publish(ctx context.Context, ms []pawl.Message) []error {
	errs := make([]error, len(ms))
	var fit []types.SendMessageBatchRequestEntry
	var places, sizes []int
	for i, m := range ms {
		e, size, err := s.entry(m)
		if err != nil {
			errs[i] = pawl.Final(err)
			continue
		}
		fit, places, sizes = append(fit, e), append(places, i), append(sizes, size)
	}
	for from := 0; from < len(fit); {
		n := together(sizes[from:])
		for i, err := range s.send(ctx, fit[from:from+n]) {
			errs[places[from+i]] = err
		}
		from += n
	}
	return errs
}

// together counts how many of the first entries go into one call; at least one.
func together(sizes []int) (n int) {
	for sum := 0; n < len(sizes) && n < MaxBatch; n++ {
		if sum += sizes[n]; n > 0 && sum > MaxSize {
			break
		}
	}
	return n
}

func (s *Sink) send(ctx context.Context, all []types.SendMessageBatchRequestEntry) []error {
	entries, errs := make([]entry, len(all)), make([]error, len(all))
	for i := range entries {
		entries[i].message = i
	}
	var whole error
	for i, o := range twice(ctx, entries, func(ctx context.Context, ids []string, entries []entry) (answered, error) {
		in := &awssqs.SendMessageBatchInput{QueueUrl: &s.url}
		for n, e := range entries {
			one := all[e.message]
			one.Id = &ids[n]
			in.Entries = append(in.Entries, one)
		}
		out, err := s.client.SendMessageBatch(ctx, in)
		if err != nil {
			whole = err
			return answered{}, err
		}
		reply := answered{failed: out.Failed}
		for _, done := range out.Successful {
			reply.successful = append(reply.successful, aws.ToString(done.Id))
		}
		return reply, nil
	}) {
		switch {
		case o.err == nil:
		case whole != nil && errors.Is(o.err, whole) && !tooLong(whole), o.again:
			errs[i] = pawl.SinkDown(wrap("sqs.sink", s.url, o.err))
		default:
			errs[i] = wrap("sqs.sink", s.url, o.err)
		}
	}
	return errs
}

// tooLong recognises the one refusal of a whole call that is about its messages.
func tooLong(err error) bool {
	var api smithy.APIError
	return errors.As(err, &api) && strings.HasSuffix(api.ErrorCode(), "BatchRequestTooLong")
}

// entry makes one message, and says how large it is.
func (s *Sink) entry(m pawl.Message) (e types.SendMessageBatchRequestEntry, size int, err error) {
	headers, err := s.headers(m)
	if err != nil {
		return e, 0, err
	}
	size = len(m.Payload)
	attributes := make(map[string]types.MessageAttributeValue, len(headers))
	for name, value := range headers {
		attributes[name] = text(value)
		size += len(name) + len("String") + len(value)
	}
	switch {
	case len(m.Payload) == 0:
		return e, 0, errors.New("the payload is empty, which SQS refuses")
	case size > MaxSize:
		return e, 0, fmt.Errorf("the event has %d octets with its headers, SQS takes %d", size, MaxSize)
	}
	e = types.SendMessageBatchRequestEntry{MessageBody: aws.String(string(m.Payload)), MessageAttributes: attributes}
	if s.fifo {
		e.MessageGroupId, e.MessageDeduplicationId = aws.String(short(cmp.Or(m.Group, m.ID))), aws.String(short(m.ID))
	}
	return e, size, nil
}

// headers chooses what is sent as attributes.
func (s *Sink) headers(m pawl.Message) (map[string]string, error) {
	chosen := map[string]string{s.name: m.ID, pawl.HeaderEventID: m.ID}
	rest := maps.Clone(m.Headers)
	maps.DeleteFunc(rest, func(name, value string) bool { return value == "" || name == s.name || name == pawl.HeaderEventID })
	take := func(names ...string) {
		for _, name := range names {
			if value, there := rest[name]; there && len(chosen) < MaxAttributes {
				chosen[name] = value
			}
			delete(rest, name)
		}
	}
	optional := map[string]string{}
	for _, name := range []string{"ce-subject", "ce-time", "content-type", traceState} {
		if value, there := rest[name]; there {
			optional[name] = value
			delete(rest, name)
		}
	}
	take("ce-id", "ce-source", "ce-specversion", "ce-type", traceParent)
	if own := len(rest); own > MaxAttributes-len(chosen) {
		return nil, fmt.Errorf("the event has %d headers of its own, SQS has room for %d", own, MaxAttributes-len(chosen))
	}
	take(slices.Sorted(maps.Keys(rest))...)
	rest = optional
	take("ce-subject", "ce-time", "content-type", traceState)
	return chosen, nil
}

// short makes a group or deduplication id, of which SQS takes 128 letters, digits and signs of ASCII.
func short(id string) string {
	odd := func(r rune) bool { return r <= ' ' || r > '~' }
	if len(id) <= 128 && !strings.ContainsFunc(id, odd) {
		return id
	}
	return fmt.Sprintf("%x", sha256.Sum256([]byte(id)))
}
