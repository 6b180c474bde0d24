package pawlnats

import (
	"context"
	"errors"
	"fmt"
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
	atOnce      = 64              // requests of one Publish under way
	publishWait = 5 * time.Second // for the confirmation of one message
)

// SinkConfig shapes a [Sink]. Set one of Subject and SubjectOf.
type SinkConfig struct {
	// Subject is that of every message.
	Subject string
	// SubjectOf chooses the subject of a message; it must always answer the same for one message. [SubjectByType] makes one. A subject that is
	// not valid makes the event a dead letter.
	SubjectOf func(m pawl.Message) string
}

// A Sink publishes the events of an outbox to a stream of JetStream: give it to outbox.Config. Its methods may be called from many
// goroutines. It never closes the connection.
//
// The event's id is the header Nats-Msg-Id, by which JetStream drops what is published again within the stream's window of duplicates (2 min
// by default), and Idempotency-Key, by which a [Source] recognises it at any time. JetStream confirms what it drops, and looks at the id
// only: another body under a known id is dropped and confirmed too. All other headers of the message go along, as the NATS binding of
// CloudEvents 1.0 names them.
//
// A message counts as published once JetStream has stored and confirmed it. If no confirmation comes, it is unknown whether it is stored: the
// event is published again, with the same id, and receivers absorb it. What JetStream cannot carry becomes a dead letter at once, and nothing
// of it is sent; see [Sink.Carries].
type Sink struct {
	conn     *nats.Conn
	js       jetstream.JetStream
	stream   string
	config   SinkConfig
	most     int // octets of a message with its headers
	mostBody int // octets that the stream takes of a message with its headers; -1: as many
	subjects atomic.Pointer[[]string]
	probing  atomic.Bool
}

var (
	_ pawl.Carrier   = (*Sink)(nil)
	_ pawl.BatchSink = (*Sink)(nil)
	_ pawl.Broker    = (*Sink)(nil)
)

// OpenSink finds the stream. It makes nothing. It returns an error that says in one line what to do
// if the stream does not exist, if it does not take [SinkConfig.Subject], if it confirms nothing
// (no_ack), or if the connection would give up for good: connect with nats.MaxReconnects(-1).
func OpenSink(ctx context.Context, js jetstream.JetStream, stream string, cfg SinkConfig) (*Sink, error) {
	const op = "nats.sink"
	switch {
	case js == nil:
		return nil, adapter.BadArgument(op, "the JetStream context is missing")
	case stream == "":
		return nil, adapter.BadArgument(op, "the stream has no name")
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
		return nil, &pawl.Error{Op: op, Code: pawl.CodeArgumentInvalid, Err: fmt.Errorf("the stream %s does not take the subject %q, but %q", stream, cfg.Subject, info.Config.Subjects),
			Hint: "add the subject to the stream, or correct SinkConfig.Subject"}
	}
	return s, nil
}

// look asks what the stream takes.
func (s *Sink) look(ctx context.Context) (*jetstream.StreamInfo, error) {
	stream, err := s.js.Stream(ctx, s.stream)
	if err != nil {
		return nil, err
	}
	info := stream.CachedInfo()
	s.subjects.Store(&info.Config.Subjects)
	return info, nil
}

// Broker returns nats and the name of the stream, for traces.
func (s *Sink) Broker() (system, destination string) { return "nats", s.stream }

// Carries returns why JetStream can never carry the event octet for octet: a subject that is not valid; more octets, with its headers, than the
// server or the stream takes; a header whose name or value NATS changes or refuses, that begins with "Nats-", which would be an order to
// the server, or that has the name of one that carries the event's id, with another value.
func (s *Sink) Carries(m pawl.Message) error {
	_, err := s.parcel(m)
	return err
}

// Publish implements [pawl.Sink]: it sends the messages side by side, and each counts once JetStream has confirmed it.
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
	for _, err := range errs {
		if err != nil {
			return errs
		}
	}
	return nil
}

// PublishBatch implements [pawl.BatchSink]: it sends the events of an aggregate one by one, each after the one before was confirmed. So none can
// overtake another, also if JetStream refuses one, or its leader moves.
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
// publish: a crash in it costs a second copy, which JetStream drops within its window, and receivers after it.
func (s *Sink) publish(ctx context.Context, m pawl.Message) error {
	out, err := s.parcel(m)
	if err != nil {
		return misfit(err)
	}
	if !s.conn.IsConnected() { // nats.go would buffer it, and send it when it was given up here
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

// judge is the one rule for a message that was not confirmed:
//
//	it can never be taken                   Final: a dead letter
//	the stream does not take its subject    charged to the event: an operator may add it
//	everything else of the server, silence  SinkDown: sent again, with the same id
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

// Codes of JetStream that package jetstream does not name (server/errors.json of nats-server).
const (
	codeNotThisStream = 10060 // another stream takes the subject
	codeHeaderTooLong = 10097
	codeSealed        = 10109
	codeInProcess     = 10158 // the same id, a moment ago
	codeStoreFailed   = 10077 // with the reason in words
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
			return err // others have room
		}
	case codeSealed, codeInProcess:
	default:
		if api.Code >= 400 && api.Code < 500 {
			return err
		}
	}
	return pawl.SinkDown(err) // full, sealed, without a leader, short of storage
}

func (s *Sink) refused(subject string, err error) error {
	return &pawl.Error{Op: "nats.sink", Err: adapter.Short(fmt.Sprintf("the stream %s does not take the subject %q", s.stream, subject), err),
		Hint: "add the subject to the stream, or correct SinkConfig.SubjectOf"}
}

// strange reports whether the stream does not take a subject: one that it took before may be missing now, so it asks again.
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
	for _, pattern := range *s.subjects.Load() {
		if matches(pattern, subject) {
			return true
		}
	}
	return false
}

// probe finds out, beside the caller, whether the server is there at all, and reconnects if not; see [Source.unanswered].
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

// misfit is the end of an event of which no message can be made. A panic says nothing of the next
// attempt, and is charged.
func misfit(err error) error {
	failure := &pawl.Error{Op: "nats.sink", Err: err}
	if callback.Panicked(err) {
		return failure
	}
	return pawl.Final(failure)
}
