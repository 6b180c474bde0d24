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

// linger is how long a pull that has brought something waits for the next, if JetStream said that there is more. It may not come: others
// pull too, and MaxAckPending may be reached.
const linger = 10 * time.Millisecond

// A pull is one request for messages.
//
// It does not go through Consumer.Fetch of nats.go, which has no end that loses nothing: what is on its way when a Fetch is cut off, or
// waits in its channel, is hidden until AckWait, and a message without a body that has a header Status is taken for a word of the server.
type pull struct {
	conn *nats.Conn
	sub  *nats.Subscription
	in   chan *nats.Msg
	most int
	got  []*nats.Msg
}

// pull makes one request and waits for its end, or for what of it comes at once. Nothing of it is left behind: when pull returns, JetStream has
// sent all that it will, and all that it sent is in got, also if there is an error. A connection that breaks is the exception.
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
		_ = p.sub.Unsubscribe() // nothing was asked for
		return nil, err
	}
	timer := time.NewTimer(b.wait + answerSlack)
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

// errTooLarge is the end of a request whose octets the next message does not fit.
var errTooLarge = errors.New("the next message has more octets than the consumer's MaxRequestMaxBytes allows for one request")

// take reads one message. The request has ended if it has brought all it may, or if JetStream says so: such a word has no reply subject, a
// message always has one. A message that no longer fits comes with the next request, unless it was the first: then it never fits.
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

// cut ends a request that is still open: it takes the inbox away, and then reads what was on its way.
func (p *pull) cut(ctx context.Context) []*nats.Msg {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), pongWait)
	defer cancel()
	_ = p.sub.Drain()
	_ = p.conn.FlushWithContext(ctx) // a connection that does not answer brings nothing any more
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

// unanswered finds out what became of a request without an answer. Servers before 2.10 drop one that expires without a word, now and then. If
// the server does not answer at all, the connection looks alive and is dead: nats.go would notice after its own pings, in four minutes by
// default.
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

// verdict reads a word of JetStream about a request.
func verdict(m *nats.Msg) (ended bool, err error) {
	about := strings.ToLower(m.Header.Get("Description"))
	switch status := m.Header.Get("Status"); status {
	case "100": // a heartbeat
		return false, nil
	case "404", "408": // nothing came in time
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

// pending is how many messages wait behind one, as JetStream counted when it sent it.
func pending(m *nats.Msg) uint64 {
	meta, err := m.Metadata()
	if err != nil {
		return 0
	}
	return meta.NumPending
}
