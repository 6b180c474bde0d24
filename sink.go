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

// A Message is an event on its way out, as a [Sink] publishes it.
type Message struct {
	// ID is the same at every try, so that receivers recognise a second delivery. 1 to 255 octets.
	ID string
	// Type says what happened, such as "OrderPlaced".
	Type string
	// AggregateType and AggregateID name the thing it happened to. Empty: the event needs no order.
	AggregateType, AggregateID string
	// Group is both in one word, at most 255 octets, for brokers that order by group. Empty: no order.
	Group string
	// Position grows with every event of the aggregate, with gaps; 0 without an aggregate.
	Position int64
	// Time is when it happened, as the event says, or when it was appended.
	Time time.Time
	// Payload is the exact octets that were appended.
	Payload []byte
	// Headers hold the attributes of CloudEvents 1.0 as its HTTP binding names them (ce-id, ce-source, ce-specversion, ce-type,
	// ce-time, ce-subject, content-type), the id once more as [HeaderEventID], the trace, and what was appended beside them.
	Headers map[string]string
	// Attempt counts the tries of this event, this one included.
	Attempt int
}

// HeaderEventID is the header that carries [Message.ID], also where CloudEvents are not spoken.
const HeaderEventID = "pawl-event-id"

// A Sink is where events go: the smallest seam a broker needs.
type Sink interface {
	// Publish sends messages, no two of one aggregate, so in any order and side by side. It answers with an error for each, in
	// their order, or nil if all were accepted. A message without an error counts as published and is never sent again; one with
	// an error is sent again, and so is all of it after a crash.
	//
	// An error means "not this one": it is charged to the event. Wrap it in [Final] if no retry can help, and in [SinkDown] if it
	// is about the sink and not about the message; see there. Publish returns soon after ctx ends: after 2 s the
	// relay leaves it behind and publishes all of it again. A panic is an error of each message.
	//
	// A sink sends a message octet for octet or refuses it before it sends anything; see [Carrier].
	Publish(ctx context.Context, ms []Message) []error
}

// A BatchSink is a [Sink] that takes several events of one aggregate in one call, as a FIFO group or a partition does. The relay then
// publishes an aggregate's events in batches: see the guide of package outbox.
type BatchSink interface {
	Sink
	// PublishBatch publishes messages of one aggregate, in their order, and answers how many of them it has accepted: the first accepted ones, and
	// none after them. Those count as published and are never sent again; the others are sent again, in order, and so is all of the batch after a
	// crash. A later message must not be accepted before an earlier one, nor if an earlier one was refused.
	//
	// err says why the message after the accepted ones was not accepted, as an error of Publish does. It is charged to that message
	// when it is refused as the first of a batch. With all accepted, err is dropped. The rest is as of Publish.
	PublishBatch(ctx context.Context, ms []Message) (accepted int, err error)
}

// A Carrier is a [Sink] that knows its limits. The relay asks it about each message before it publishes any: a message that the
// sink cannot carry becomes a dead letter at once, and its neighbours are published without it.
type Carrier interface {
	Sink
	// Carries returns nil if the sink can publish m exactly as it is, and otherwise the reason why it never can. It looks at m
	// alone: it sends nothing, asks no one and always answers the same. It must be safe for concurrent use.
	Carries(m Message) error
}

// A Broker is a [Source] or a [Sink] that says where its messages are, for traces.
type Broker interface {
	// Broker returns the messaging system, as OpenTelemetry's semantic conventions name it ("aws_sqs", "kafka"), and the queue or topic.
	Broker() (system, destination string)
}

// SinkDown says of a [Sink]'s error that nothing can be published now, whatever it is: no attempt is charged to an event for
// it, and the relay asks for less until the sink is back. Network errors and timeouts count as such without being wrapped.
func SinkDown(err error) error {
	if err == nil {
		return nil
	}
	return &sinkDownError{err}
}

// IsSinkDown reports whether err was wrapped by [SinkDown], or is an error of the network or a timeout. An error that is [Final]
// is about the message, whatever it wraps.
//
// net/http returns every failure as a [url.Error], also "invalid header field value", which is about the message. Such an error
// counts only if it wraps an error of the network, a certificate that is not trusted, a closed connection or a timeout.
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

// networkFailed recognises what sockets and TLS answer.
func networkFailed(err error) bool {
	var certificate *tls.CertificateVerificationError
	var network net.Error
	if !errors.As(err, &network) {
		return errors.As(err, &certificate)
	}
	number, bare := network.(syscall.Errno) // every Errno is a net.Error, also "file name too long"
	return !bare || number.Timeout() || slices.Contains(networkNumbers, number)
}

var networkNumbers = []syscall.Errno{syscall.ECONNREFUSED, syscall.ECONNRESET, syscall.ECONNABORTED, syscall.EPIPE,
	syscall.EHOSTUNREACH, syscall.ENETUNREACH, syscall.ENETDOWN}

type sinkDownError struct{ err error }

func (e *sinkDownError) Error() string { return "the sink is down: " + e.err.Error() }
func (e *sinkDownError) Unwrap() error { return e.err }
