package pawl

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/url"
	"slices"
	"syscall"
	"time"
)

// A Message is an event as a [Sink] publishes it.
type Message struct {
	// ID is the same at every attempt, so that receivers recognise duplicates. 1 to 255 octets.
	ID string
	// Type names the kind of event, such as "OrderPlaced".
	Type string
	// AggregateType and AggregateID name the event's aggregate: the entity that it is about, such
	// as "order" and "17". Empty: the event needs no order.
	AggregateType, AggregateID string
	// Group combines both, in at most 255 octets, for brokers that order by group. Empty: no order.
	Group string
	// Position grows with every event of the aggregate, with gaps. 0 without an aggregate.
	Position int64
	// Time is when the event happened, as given by the application, or when it was appended.
	Time time.Time
	// Payload is the exact octets that were appended.
	Payload []byte
	// Headers hold the CloudEvents 1.0 attributes as the HTTP binding names them (ce-id, ce-source,
	// ce-specversion, ce-type, ce-time, ce-subject, content-type). They also hold the id as
	// [HeaderEventID], the trace, and the headers that were appended with the event.
	Headers map[string]string
	// Attempt counts the attempts to publish this event, this one included.
	Attempt int
}

// HeaderEventID is the header that carries [Message.ID], for receivers that do not read
// CloudEvents.
const HeaderEventID = "pawl-event-id"

// A Sink publishes events to a broker. It is the smallest interface that a broker needs.
type Sink interface {
	// Publish sends messages, in any order or concurrently, since no two belong to one aggregate.
	// It returns an error for each message, in their order, or nil if all were accepted. A message
	// without an error is published. One with an error is sent again; after a crash all are.
	//
	// An error means that this message was not accepted, and is charged to its event. Wrap the
	// error in [Final] if no retry can help, and in [SinkDown] if the cause is the sink and not the
	// message. A panic counts as an error of each message. Publish must return soon after ctx ends.
	// After 2 s the relay abandons the call and publishes all of it again.
	//
	// A sink sends a message octet for octet or refuses it before it sends anything; see [Carrier].
	Publish(ctx context.Context, ms []Message) []error
}

// A BatchSink is a [Sink] that takes several events of one aggregate in one call, as a
// partition of Kafka does. The relay then publishes an aggregate in batches; see
// outbox.Config.MaxBatch.
type BatchSink interface {
	Sink
	// PublishBatch publishes messages of one aggregate in order, and returns how many it accepted.
	// It accepts a prefix: never a message after one that was refused. Accepted messages are never
	// sent again, unless the relay crashes. The others are sent again, in order.
	//
	// err says why the first message after the accepted ones was not accepted, like an error of
	// Publish. It is charged to that message only if that message was the first of its batch. If
	// all were accepted, err is ignored. Otherwise the rules of Publish apply.
	PublishBatch(ctx context.Context, ms []Message) (accepted int, err error)
}

// A Carrier is a [Sink] that knows its limits. The relay asks it before it publishes. A message
// that the sink cannot carry becomes a dead letter at once, and the others are published.
type Carrier interface {
	Sink
	// Carries returns nil if the sink can publish m unchanged, else why it never can. It depends on
	// m alone, makes no requests, and must be safe for concurrent use.
	Carries(m Message) error
}

// A Broker is a [Source] or a [Sink] that names its broker and queue or topic, for traces.
type Broker interface {
	// Broker returns the messaging system, as OpenTelemetry's semantic conventions name it
	// ("aws_sqs", "kafka"), and the queue or topic.
	Broker() (system, destination string)
}

// SinkDown marks a [Sink]'s error as one that affects every message. The relay (outbox.Relay) then
// charges no attempt to the events, and sends less until the sink is back. Network errors and
// timeouts need no SinkDown.
func SinkDown(err error) error {
	if err == nil {
		return nil
	}
	return &sinkDownError{err}
}

// IsSinkDown reports whether err is about a [Sink] and not about one message: it was wrapped by
// [SinkDown], or is a network error or a timeout. An error that is [Final] is always about the
// message.
//
// net/http returns every failure as a [url.Error], also "invalid header field value", which is
// about the message. Such an error counts only if it wraps a network error, an untrusted
// certificate, a closed connection or a timeout.
func IsSinkDown(err error) bool {
	var down *sinkDownError
	switch {
	case IsFinal(err):
		return false
	case errors.As(err, &down):
		return true
	}
	var request *url.Error
	if errors.As(err, &request) {
		return request.Timeout() || networkFailed(request.Err) || errors.Is(request.Err, io.EOF) || errors.Is(request.Err, io.ErrUnexpectedEOF)
	}
	return networkFailed(err)
}

// networkFailed recognises errors of sockets and TLS.
func networkFailed(err error) bool {
	var certificate *tls.CertificateVerificationError
	var network net.Error
	if !errors.As(err, &network) {
		return errors.As(err, &certificate)
	}
	// Every Errno is a net.Error, also ENAMETOOLONG.
	number, bare := network.(syscall.Errno)
	return !bare || number.Timeout() || slices.Contains(networkNumbers, number)
}

var networkNumbers = []syscall.Errno{syscall.ECONNREFUSED, syscall.ECONNRESET, syscall.ECONNABORTED, syscall.EPIPE,
	syscall.EHOSTUNREACH, syscall.ENETUNREACH, syscall.ENETDOWN}

type sinkDownError struct{ err error }

func (e *sinkDownError) Error() string { return "the sink is down: " + e.err.Error() }
func (e *sinkDownError) Unwrap() error { return e.err }
