package pawlnats

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// linger is how long a pull waits for the next message if JetStream reported more. It may not come,
// because other processes pull too and MaxAckPending may be reached.
const linger = 10 * time.Millisecond

// A pull is one request for messages.
//
// It does not use nats.go's Consumer.Fetch, which cannot be cancelled without loss. Messages in
// flight or in its channel stay hidden until AckWait. Fetch also takes a message without a body for
// a status of the server if it has a header Status.
type pull struct {
	conn *nats.Conn
	sub  *nats.Subscription
	in   chan *nats.Msg
	most int
	got  []*nats.Msg
}

// pull makes one request and waits for its end, or for the messages that come at once. When it
// returns, JetStream sends nothing more for the request, and got holds all that it sent, even with
// an error. Only a broken connection may lose messages until AckWait.
func (s *Source) pull(ctx context.Context, b *binding, most int) (got []*nats.Msg, err error) {
	p := &pull{conn: s.conn, most: most, in: make(chan *nats.Msg, most+8)}
	inbox := s.conn.NewInbox()
	if p.sub, err = s.conn.ChanSubscribe(inbox, p.in); err != nil {
		return nil, err
	}
	broken := s.conn.StatusChanged(nats.RECONNECTING, nats.DISCONNECTED, nats.CLOSED)
	defer s.conn.RemoveStatusListener(broken)
	request, err := json.Marshal(struct {
		Batch    int           `json:"batch"`
		MaxBytes int           `json:"max_bytes"`
		Expires  time.Duration `json:"expires"`
	}{most, b.bytes, b.wait})
	if err == nil {
		err = s.conn.PublishRequest(s.pulls, inbox, request)
	}
	if err != nil {
		_ = p.sub.Unsubscribe() // nothing was requested
		return nil, err
	}
	timer := time.NewTimer(b.wait + responseSlack)
	defer timer.Stop()
	for {
		select {
		case m := <-p.in:
			s.unansweredInRow.Store(0)
			if ended, err := p.take(m); ended {
				_ = p.sub.Unsubscribe()
				return p.got, err
			}
			if len(p.got) > 0 && pending(p.got[len(p.got)-1]) == 0 {
				return p.cut(ctx), nil
			}
			timer.Reset(linger)
		case <-timer.C:
			if len(p.got) > 0 {
				return p.cut(ctx), nil
			}
			return p.cut(ctx), s.unanswered(ctx)
		case <-broken:
			_ = p.sub.Unsubscribe()
			return p.got, nats.ErrDisconnected
		case <-ctx.Done():
			return p.cut(ctx), ctx.Err()
		}
	}
}

var errTooLarge = errors.New("the next message has more bytes than the consumer's MaxRequestMaxBytes allows for one request")

// take reads one message. The request ends once it is complete, or when JetStream sends a status,
// which has no reply subject; messages always have one. A message that exceeds the rest of the byte
// limit comes with the next request. If it is the first of its request, it never fits.
func (p *pull) take(m *nats.Msg) (ended bool, err error) {
	if m.Reply != "" {
		p.got = append(p.got, m)
		return len(p.got) == p.most, nil
	}
	ended, err = verdict(m)
	if errors.Is(err, errTooLarge) && len(p.got) > 0 {
		err = nil
	}
	return ended, err
}

// cut cancels an open request: it drains the subscription, and then reads what was in flight.
func (p *pull) cut(ctx context.Context) []*nats.Msg {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), pongWait)
	defer cancel()
	_ = p.sub.Drain()
	_ = p.conn.FlushWithContext(ctx) // a connection that does not answer delivers nothing more
	for {
		select {
		case m := <-p.in:
			if ended, _ := p.take(m); ended {
				return p.got
			}
		default:
			return p.got
		}
	}
}

// unanswered handles a request without an answer. Servers before 2.10 sometimes drop an expired
// request silently. If the server does not answer a ping either, unanswered reconnects. nats.go
// would notice a dead connection only with its own pings, by default after four minutes.
func (s *Source) unanswered(ctx context.Context) error {
	s.binder.doubt.Store(true)
	flushing, cancel := context.WithTimeout(ctx, pongWait)
	defer cancel()
	if err := s.conn.FlushWithContext(flushing); err != nil && ctx.Err() == nil {
		s.counters.reconnects.Add(1)
		_ = s.conn.ForceReconnect()
		return fmt.Errorf("the server does not answer, reconnecting: %w", nats.ErrTimeout)
	}
	if err := s.conn.LastError(); errors.Is(err, nats.ErrPermissionViolation) {
		return err
	}
	if s.unansweredInRow.Add(1) >= mostUnanswered {
		return nats.ErrTimeout
	}
	return nil
}

func verdict(m *nats.Msg) (ended bool, err error) {
	about := strings.ToLower(m.Header.Get("Description"))
	switch status := m.Header.Get("Status"); status {
	case "100": // heartbeat
		return false, nil
	case "404", "408": // no message in time
		return true, nil
	case "503":
		return true, nats.ErrNoResponders
	case "409":
		switch {
		case strings.Contains(about, "consumer deleted"):
			return true, jetstream.ErrConsumerDeleted
		case strings.Contains(about, "exceeds maxbytes"):
			return true, errTooLarge
		case strings.Contains(about, "batch completed"):
			return true, nil
		}
		return true, fmt.Errorf("JetStream ended the request: %s", about)
	default:
		return true, fmt.Errorf("JetStream refused the request: %s %s", status, about)
	}
}

// pending returns how many messages JetStream had left when it sent m.
func pending(m *nats.Msg) uint64 {
	meta, err := m.Metadata()
	if err != nil {
		return 0
	}
	return meta.NumPending
}
