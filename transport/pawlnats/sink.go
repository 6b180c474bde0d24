package pawlnats

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/callback"
	"github.com/pawl-go/pawl/internal/fault"
	"github.com/pawl-go/pawl/transport/internal/adapter"
)

const (
	atOnce      = 64              // concurrent requests per Publish
	publishWait = 5 * time.Second // timeout for the confirmation of one message
)

// SinkConfig configures a [Sink]. Set either Subject or SubjectOf.
type SinkConfig struct {
	// Subject is the subject of all messages.
	Subject string
	// SubjectOf returns the subject of a message, always the same for the same message.
	// [SubjectByType] makes one. An event with an invalid subject becomes a dead letter.
	SubjectOf func(m pawl.Message) string
}

// A Sink publishes the events of an outbox to a stream of JetStream: pass it to outbox.Config. It
// is safe for concurrent use. It never closes the connection.
//
// The event's id goes into two headers. JetStream drops resends by Nats-Msg-Id within the stream's
// duplicate window, 2 min by default. A [Source] recognises the event by Idempotency-Key at any
// time. JetStream confirms what it drops and compares only the id, so another body under a known id
// is lost. The other headers follow the NATS binding of CloudEvents 1.0.
//
// A message counts as published once JetStream has stored and confirmed it. Without a confirmation
// the event is published again under the same id, and receivers absorb it. An event that JetStream
// cannot carry becomes a dead letter at once and is not sent; see [Sink.Carries].
type Sink struct {
	conn     *nats.Conn
	js       jetstream.JetStream
	stream   string
	config   SinkConfig
	most     int // limit of the server for a message with its headers, in bytes
	mostBody int // the same limit of the stream; -1: none
	subjects atomic.Pointer[[]string]
	probing  atomic.Bool
}

var (
	_ pawl.Carrier   = (*Sink)(nil)
	_ pawl.BatchSink = (*Sink)(nil)
	_ pawl.Broker    = (*Sink)(nil)
)

// OpenSink finds the stream; it creates nothing. It returns an error with a hint if the stream is
// missing, does not accept [SinkConfig.Subject] or confirms nothing (no_ack). The connection must
// reconnect forever: connect with nats.MaxReconnects(-1).
func OpenSink(ctx context.Context, js jetstream.JetStream, stream string, cfg SinkConfig) (*Sink, error) {
	const op = "nats.sink"
	switch {
	case js == nil:
		return nil, adapter.BadArgument(op, "the JetStream context is missing")
	case stream == "":
		return nil, adapter.BadArgument(op, "the name of the stream is empty")
	case (cfg.Subject == "") == (cfg.SubjectOf == nil):
		return nil, adapter.BadArgument(op, "set one of Subject and SubjectOf")
	}
	if err := patientConn(op, js.Conn()); err != nil {
		return nil, err
	}
	s := &Sink{conn: js.Conn(), js: js, stream: stream, config: cfg, most: int(js.Conn().MaxPayload())}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	info, err := s.look(ctx)
	if err != nil {
		return nil, wrap(op, stream, err)
	}
	if info.Config.NoAck {
		return nil, &pawl.Error{Op: op, Code: pawl.CodeArgumentInvalid, Err: fmt.Errorf("the stream %s has no_ack: it confirms no message, so none could count as published", stream),
			Hint: "turn off no_ack (StreamConfig.NoAck) of the stream"}
	}
	s.mostBody = int(info.Config.MaxMsgSize)
	if cfg.Subject == "" {
		return s, nil
	}
	if err := checkSubject(cfg.Subject); err != nil {
		return nil, adapter.BadArgument(op, "%v", err)
	}
	if !s.takes(cfg.Subject) {
		return nil, &pawl.Error{Op: op, Code: pawl.CodeArgumentInvalid, Err: fmt.Errorf("the stream %s does not accept the subject %q, only %q", stream, cfg.Subject, info.Config.Subjects),
			Hint: "add the subject to the stream, or correct SinkConfig.Subject"}
	}
	return s, nil
}

func (s *Sink) look(ctx context.Context) (*jetstream.StreamInfo, error) {
	stream, err := s.js.Stream(ctx, s.stream)
	if err != nil {
		return nil, err
	}
	info := stream.CachedInfo()
	s.subjects.Store(&info.Config.Subjects)
	return info, nil
}

// Broker returns "nats" and the stream's name, for traces.
func (s *Sink) Broker() (system, destination string) { return "nats", s.stream }

// Carries returns an error if JetStream can never carry the event unchanged:
//
//   - its subject is invalid
//   - with its headers it exceeds the limit of the server or of the stream
//   - NATS would change or refuse a header's name or value
//   - a header begins with "Nats-", which would be a command to the server
//   - a header that carries the event's id has another value
func (s *Sink) Carries(m pawl.Message) error {
	_, err := s.parcel(m)
	return err
}

// Publish implements [pawl.Sink]. It sends up to 64 messages concurrently. Each counts as published
// once JetStream has confirmed it.
func (s *Sink) Publish(ctx context.Context, ms []pawl.Message) []error {
	errs := make([]error, len(ms))
	slots := make(chan struct{}, atOnce)
	var all sync.WaitGroup
	for i, m := range ms {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			errs[i] = s.publish(ctx, m)
		})
	}
	all.Wait()
	if errors.Join(errs...) == nil {
		return nil
	}
	return errs
}

// PublishBatch implements [pawl.BatchSink]. It sends each event of an aggregate after the previous
// one was confirmed. So their order holds even if JetStream refuses one or its leader moves.
func (s *Sink) PublishBatch(ctx context.Context, ms []pawl.Message) (accepted int, err error) {
	for _, m := range ms {
		if err := s.publish(ctx, m); err != nil {
			return accepted, err
		}
		accepted++
	}
	return accepted, nil
}

// publish sends one message and waits for its confirmation.
//
// publish: a crash in it costs a second copy, which JetStream drops or receivers absorb.
func (s *Sink) publish(ctx context.Context, m pawl.Message) error {
	out, err := s.parcel(m)
	if err != nil {
		return misfit(err)
	}
	if !s.conn.IsConnected() { // nats.go would buffer the message and send it later
		return pawl.SinkDown(wrap("nats.sink", s.stream, nats.ErrDisconnected))
	}
	if err := fault.At("nats.publish.before"); err != nil {
		return pawl.SinkDown(err)
	}
	waiting, cancel := context.WithTimeout(ctx, publishWait)
	defer cancel()
	_, err = s.js.PublishMsg(waiting, out, jetstream.WithExpectStream(s.stream), jetstream.WithRetryAttempts(0))
	if err == nil {
		err = fault.At("nats.publish.after")
	}
	return s.judge(ctx, out.Subject, err)
}

// judge decides the outcome of a message without a confirmation:
//
//	JetStream can never accept it             Final: a dead letter
//	the stream does not accept its subject    charged to the event: an operator may add it
//	any other server error, or no answer      SinkDown: sent again under the same id
func (s *Sink) judge(ctx context.Context, subject string, err error) error {
	var api *jetstream.APIError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, nats.ErrMaxPayload), errors.Is(err, nats.ErrBadSubject), errors.Is(err, nats.ErrBadHeaderMsg):
		return pawl.Final(wrap("nats.sink", s.stream, err))
	case errors.Is(err, jetstream.ErrNoStreamResponse):
		if s.strange(ctx, subject) {
			return s.refused(subject, err)
		}
		return pawl.SinkDown(wrap("nats.sink", s.stream, err))
	case errors.As(err, &api):
		return s.judgeAPI(subject, api)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrTimeout):
		s.probe()
	}
	return pawl.SinkDown(wrap("nats.sink", s.stream, err))
}

// JetStream error codes without a name in package jetstream (server/errors.json of nats-server).
const (
	codeNotThisStream = 10060 // another stream has the subject
	codeHeaderTooLong = 10097
	codeSealed        = 10109
	codeInProcess     = 10158 // the same id is being stored
	codeStoreFailed   = 10077 // the reason is in the description
)

func (s *Sink) judgeAPI(subject string, api *jetstream.APIError) error {
	err := wrap("nats.sink", s.stream, api)
	switch api.ErrorCode {
	case jetstream.JSErrCodeStreamMessageExceedsMaximum, codeHeaderTooLong:
		return pawl.Final(err)
	case codeNotThisStream:
		return s.refused(subject, api)
	case codeStoreFailed:
		if strings.Contains(api.Description, "per subject") {
			return err // other subjects have room
		}
	case codeSealed, codeInProcess:
	default:
		if api.Code >= 400 && api.Code < 500 {
			return err
		}
	}
	return pawl.SinkDown(err) // the stream is full, sealed, without a leader or out of storage
}

func (s *Sink) refused(subject string, err error) error {
	return &pawl.Error{Op: "nats.sink", Err: adapter.Short(fmt.Sprintf("the stream %s does not accept the subject %q", s.stream, subject), err),
		Hint: "add the subject to the stream, or correct SinkConfig.SubjectOf"}
}

// strange reports whether the stream does not accept a subject. The stream's subjects may have
// changed, so it asks again before it reports true.
func (s *Sink) strange(ctx context.Context, subject string) bool {
	if s.takes(subject) {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, publishWait)
	defer cancel()
	if _, err := s.look(ctx); err != nil {
		return false
	}
	return !s.takes(subject)
}

func (s *Sink) takes(subject string) bool {
	return slices.ContainsFunc(*s.subjects.Load(), func(pattern string) bool { return matches(pattern, subject) })
}

// probe checks in the background whether the server answers, and reconnects if not.
func (s *Sink) probe() {
	if !s.probing.CompareAndSwap(false, true) {
		return
	}
	go func() {
		defer s.probing.Store(false)
		if s.conn.IsConnected() && s.conn.FlushTimeout(pongWait) != nil && s.conn.IsConnected() {
			_ = s.conn.ForceReconnect()
		}
	}()
}

// misfit returns the error of an event that cannot become a message. It is final, except after a
// panic, which may not happen again and counts as an attempt.
func misfit(err error) error {
	failure := &pawl.Error{Op: "nats.sink", Err: err}
	if callback.Panicked(err) {
		return failure
	}
	return pawl.Final(failure)
}
