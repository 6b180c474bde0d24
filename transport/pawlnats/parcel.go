package pawlnats

import (
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/callback"
	"github.com/pawl-go/pawl/transport/internal/adapter"
)

// parcel builds the message to publish. It refuses values that nats.go would change: nats.go
// replaces line ends in header values and trims white space.
func (s *Sink) parcel(m pawl.Message) (*nats.Msg, error) {
	subject := s.config.Subject
	if s.config.SubjectOf != nil {
		var err error
		if subject, err = callback.Get("SinkConfig.SubjectOf", func() string { return s.config.SubjectOf(m) }); err != nil {
			return nil, err
		}
		if err := checkSubject(subject); err != nil {
			return nil, err
		}
	}
	out := nats.NewMsg(subject)
	out.Data = m.Payload
	for name, value := range m.Headers {
		if err := fitHeader(name, value, len(m.Payload) == 0); err != nil {
			return nil, err
		}
		out.Header[name] = []string{value}
	}
	for _, name := range []string{DefaultKeyHeader, pawl.HeaderEventID} {
		if value, own := m.Headers[name]; own && value != m.ID {
			return nil, fmt.Errorf("the header %q must carry the event's id, but has another value", name)
		}
		out.Header[name] = []string{m.ID}
	}
	// Checks the id, which becomes the value of Nats-Msg-Id.
	if err := fitHeader(MsgIDHeader[len("Nats-"):], m.ID, false); err != nil {
		return nil, err
	}
	out.Header[MsgIDHeader] = []string{m.ID}
	header := headerSize(out) + len(nats.ExpectedStreamHdr) + len(s.stream) + headerLine
	if header > maxHeader {
		return nil, fmt.Errorf("its headers have %d bytes, JetStream allows %d", header, maxHeader)
	}
	size := header + len(out.Data)
	if size > s.most {
		return nil, fmt.Errorf("it has %d bytes with its headers, the server allows %d: raise max_payload, or store the payload and send a reference", size, s.most)
	}
	if s.mostBody >= 0 && size > s.mostBody {
		return nil, fmt.Errorf("it has %d bytes with its headers, the stream allows %d: raise its max-msg-size, or store the payload and send a reference", size, s.mostBody)
	}
	return out, nil
}

const (
	headerLine = len(": \r\n")
	headerHead = len("NATS/1.0\r\n") + len("\r\n")
	maxHeader  = 65535 // limit for all headers (processJetStreamMsg of nats-server)
)

// headerSize counts bytes as the server does.
func headerSize(m *nats.Msg) int {
	size := headerHead
	for name, values := range m.Header {
		for _, value := range values {
			size += len(name) + len(value) + headerLine
		}
	}
	return size
}

// fitHeader accepts only headers that nats.go sends unchanged.
func fitHeader(name, value string, empty bool) error {
	odd := func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune(`"()/,:;<=>?@[\]{}`, r) }
	switch {
	case name == "" || strings.ContainsFunc(name, odd):
		return fmt.Errorf("NATS allows no header %q: names are printable ASCII without separators", name)
	case strings.HasPrefix(strings.ToLower(name), "nats-"):
		return fmt.Errorf("the header %q would be a command to the server", name)
	case name == "Status" && empty:
		return errors.New("the header \"Status\" of a message without a payload would be taken for a status of the server")
	case strings.ContainsAny(value, "\r\n"):
		return fmt.Errorf("the value of the header %q contains a line end", name)
	case strings.Trim(value, " \t") != value:
		return fmt.Errorf("the value of the header %q begins or ends with white space", name)
	case !adapter.IsText(value):
		return fmt.Errorf("the value of the header %q is not UTF-8, or contains a NUL", name)
	}
	return nil
}
