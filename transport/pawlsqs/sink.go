package pawlsqs

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/aws/smithy-go"

	"github.com/pawl-go/pawl"
)

// SinkConfig configures a [Sink]. Its zero value suits production.
type SinkConfig struct {
	// KeyAttribute is the message attribute for the event's id. Default [DefaultKeyAttribute],
	// which a [Source] reads by default.
	KeyAttribute string
	// Base64 makes the sink encode a payload that SQS cannot carry as it is, such as protobuf or
	// gzip, and set the attribute [EncodingAttribute]. A [Source] decodes it. The payload grows by
	// a third. Default false: such an event becomes a dead letter.
	Base64 bool
}

// A Sink publishes the events of an outbox to a standard or FIFO queue. Pass it to outbox.Config.
//
// The event's id is the key attribute, so a [Source] recognises a second delivery. On a FIFO queue
// the aggregate is the message group and the event's id is the deduplication id. An event without
// an aggregate forms its own group.
//
// SQS takes ten attributes. The sink always sends the key attribute, pawl-event-id, ce-id,
// ce-source, ce-specversion, ce-type and, if present, traceparent. Next come the event's own
// headers: at least three fit, or two if the payload is sent as base64. ce-subject, ce-time,
// content-type and tracestate fill the remaining room.
//
// An event that SQS cannot carry becomes a dead letter at once and is not sent; see [Sink.Carries].
type Sink struct {
	client SendAPI
	url    string
	config SinkConfig
	fifo   bool
}

var (
	_ pawl.Carrier = (*Sink)(nil)
	_ pawl.Broker  = (*Sink)(nil)
)

// OpenSink finds the queue as [Open] does.
func OpenSink(ctx context.Context, client SendAPI, queue string, cfg SinkConfig) (*Sink, error) {
	cfg.KeyAttribute = cmp.Or(cfg.KeyAttribute, DefaultKeyAttribute)
	url, err := resolve(ctx, "sqs.sink", client, queue)
	if err != nil {
		return nil, err
	}
	return &Sink{client: client, url: url, config: cfg, fifo: isFIFO(queue)}, nil
}

// Carries returns why SQS can never carry the event octet for octet, or nil. The reasons are:
//   - the payload is empty
//   - the payload or a header is not valid UTF-8 or has a character that XML 1.0 forbids
//   - a header is empty, or SQS refuses its name, or its name is the key attribute's
//   - more headers of its own than fit
//   - more than 1 MiB in all
func (s *Sink) Carries(m pawl.Message) error {
	_, err := s.parcel(m)
	return err
}

// Publish implements [pawl.Sink]. If SQS refuses a whole call or fails by its own fault, the sink
// counts as failed, and no event is charged.
func (s *Sink) Publish(ctx context.Context, ms []pawl.Message) []error {
	errs := make([]error, len(ms))
	var all []outgoing
	var indexes []int
	for i, m := range ms {
		p, err := s.parcel(m)
		if err != nil {
			errs[i] = pawl.Final(&pawl.Error{Op: "sqs.sink", Err: err})
			continue
		}
		group, dedup := "", ""
		if s.fifo {
			group, dedup = short(cmp.Or(m.Group, m.ID)), short(m.ID)
		}
		all, indexes = append(all, p.outgoing(group, dedup)), append(indexes, i)
	}
	for i, o := range sendAll(ctx, s.client, s.url, s.fifo, all) {
		if o.err == nil {
			continue
		}
		err := wrap("sqs.sink", s.url, o.err)
		if o.again || o.whole > 1 || o.whole == 1 && !aboutMessages(o.err) {
			err = pawl.SinkDown(err)
		}
		errs[indexes[i]] = err
	}
	return errs
}

// aboutMessages reports whether a refusal of a whole call is about its messages. In a call with
// several it may be about any of them, so the relay then publishes each alone.
func aboutMessages(err error) bool {
	var serialization *smithy.SerializationError
	var api smithy.APIError
	if errors.As(err, &serialization) {
		return true
	}
	return errors.As(err, &api) && messageCodes[shortCode(api.ErrorCode())]
}

var messageCodes = map[string]bool{"BatchRequestTooLong": true, "InvalidMessageContents": true, "InvalidParameterValue": true,
	"InvalidParameterCombination": true, "InvalidAttributeValue": true, "MissingParameter": true, "SerializationException": true,
	"MalformedInput": true, "RequestEntityTooLarge": true}

func (s *Sink) parcel(m pawl.Message) (parcel, error) {
	room := maxAttributes
	if s.config.Base64 && fitText(string(m.Payload)) != nil {
		room-- // for EncodingAttribute
	}
	headers, err := s.headers(m, room)
	if err != nil {
		return parcel{}, err
	}
	return parcelOf(m.Payload, headers, s.config.Base64)
}

func (s *Sink) headers(m pawl.Message, room int) (map[string]string, error) {
	chosen := map[string]string{s.config.KeyAttribute: m.ID, pawl.HeaderEventID: m.ID}
	rest := maps.Clone(m.Headers)
	delete(rest, pawl.HeaderEventID)
	if value, own := rest[s.config.KeyAttribute]; own && value != m.ID {
		return nil, fmt.Errorf("the header %q has the name of the attribute that carries the event's id", s.config.KeyAttribute)
	}
	delete(rest, s.config.KeyAttribute)
	take := func(from map[string]string, names ...string) {
		for _, name := range names {
			if value, there := from[name]; there && len(chosen) < room {
				chosen[name] = value
			}
			delete(from, name)
		}
	}
	optional := map[string]string{}
	for _, name := range optionalHeaders {
		if value := rest[name]; value != "" {
			optional[name] = value
		}
		delete(rest, name)
	}
	take(rest, "ce-id", "ce-source", "ce-specversion", "ce-type", traceParent)
	if own := len(rest); own > room-len(chosen) {
		return nil, fmt.Errorf("the event has %d headers of its own, SQS has room for %d", own, room-len(chosen))
	}
	take(rest, slices.Sorted(maps.Keys(rest))...)
	take(optional, optionalHeaders...)
	return chosen, nil
}

var optionalHeaders = []string{"ce-subject", "ce-time", "content-type", traceState}

// short makes a group or deduplication id, for which SQS takes 128 ASCII letters, digits and
// punctuation. A longer or other id becomes its SHA-256.
func short(id string) string {
	if validDeduplicationID.MatchString(id) {
		return id
	}
	return fmt.Sprintf("%x", sha256.Sum256([]byte(id)))
}
