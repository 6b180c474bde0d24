package webhook_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/transport/transporttest"
	"github.com/pawl-go/pawl/transport/webhook"
)

// A receiver keeps the promises of a source, to a sender that sends until it is told 200.
func TestReceiver_Acceptance(t *testing.T) {
	t.Parallel()
	transporttest.Run(t, transporttest.Broker{
		Features: transporttest.Features{ReleaseDelay: true, CrashRedelive: true, SentAt: true},
		Open: func(t *testing.T) transporttest.Queue {
			o := &outbound{t: t}
			return transporttest.Queue{Send: o.send, Source: o.open, Abandon: o.abandon}
		},
	})
}

// An outbound is a sender that keeps sending, to whichever receiver is there.
type outbound struct {
	t         *testing.T
	mu        sync.Mutex
	endpoints []*endpoint
	next      int
}

// An endpoint is one receiver behind its own server.
type endpoint struct {
	*webhook.Receiver
	server *httptest.Server
}

// Receive names attributes as the suite does: names of headers have no case.
func (e *endpoint) Receive(ctx context.Context, limit int) ([]pawl.Delivery, error) {
	ds, err := e.Receiver.Receive(ctx, limit)
	for i := range ds {
		if kind, there := ds[i].Attributes["Type"]; there {
			ds[i].Attributes = map[string]string{"type": kind}
		}
	}
	return ds, err
}

func (o *outbound) open(t *testing.T) pawl.Source {
	s := senderNamed("standard")
	v := verifier(t, webhook.Config{Scheme: s.scheme(secrets(s.value)...), Keep: []string{"type"}})
	e := &endpoint{Receiver: newReceiver(t, v, webhook.ReceiverConfig{ResponseTimeout: 4 * time.Second})}
	e.server = httptest.NewServer(e.Receiver)
	t.Cleanup(e.server.CloseClientConnections)
	o.mu.Lock()
	o.endpoints = append(o.endpoints, e)
	o.mu.Unlock()
	return e
}

func (o *outbound) abandon(s pawl.Source) {
	o.mu.Lock()
	o.endpoints = slices.DeleteFunc(o.endpoints, func(e *endpoint) bool { return pawl.Source(e) == s })
	o.mu.Unlock()
	s.(*endpoint).server.CloseClientConnections()
}

// send begins to send, and goes on until the test ends or a receiver has said 200.
func (o *outbound) send(ctx context.Context, m transporttest.Message) error {
	s := senderNamed("standard")
	scheme := s.scheme(secrets(s.value)...)
	go func() {
		for ctx.Err() == nil {
			h, err := scheme.Sign(m.Key, time.Now(), m.Payload)
			if err != nil {
				panic(fmt.Sprint("sign: ", err))
			}
			for name, value := range m.Attributes {
				h.Set(name, value)
			}
			if a, err := post(ctx, o.url(), h, string(m.Payload)); err == nil && a.status == http.StatusOK {
				return
			}
			time.Sleep(2 * time.Millisecond)
		}
	}()
	return nil
}

// url is that of the next receiver.
func (o *outbound) url() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.endpoints) == 0 {
		return ""
	}
	o.next++
	return o.endpoints[o.next%len(o.endpoints)].server.URL
}
