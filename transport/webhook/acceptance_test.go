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
	"github.com/pawl-go/pawl/internal/testbed/patience"
	"github.com/pawl-go/pawl/transport/transporttest"
	"github.com/pawl-go/pawl/transport/webhook"
)

// A receiver keeps the promises of a source, to a sender that sends until it is told 200.
func TestReceiver_Acceptance(t *testing.T) {
	t.Parallel()
	transporttest.Run(t, transporttest.Broker{
		Features: transporttest.Features{ReleaseDelay: true, CrashRedelive: true, SentAt: true, Reconnects: true, Revoked: true, Octets: true},
		Open: func(t *testing.T) transporttest.Queue {
			o := &outbound{t: t, told: map[string]bool{}}
			return transporttest.Queue{Send: o.send, Source: o.open, Abandon: o.abandon, Disconnect: o.disconnect, Revoke: o.disconnect}
		},
	})
}

// An outbound is a sender that keeps sending, to whichever receiver is there.
type outbound struct {
	t         *testing.T
	mu        sync.Mutex
	endpoints []*endpoint
	sent      int             // messages
	told      map[string]bool // keys whose sender was told 200
}

// arrives waits until the answers of what an endpoint acknowledged have arrived: a crash then takes
// none of them along. If its sender has left, an answer arrives nowhere, so it waits for 200 polls.
func (o *outbound) arrives(e *endpoint) {
	e.mu.Lock()
	acked := slices.Clone(e.acked)
	e.mu.Unlock()
	arrived := func() bool {
		o.mu.Lock()
		defer o.mu.Unlock()
		return !slices.ContainsFunc(acked, func(key string) bool { return !o.told[key] })
	}
	polls := 0
	_ = patience.Poll(o.t.Context(), func() bool { polls++; return polls > 200 || arrived() })
}

// An endpoint is one receiver behind its own server.
type endpoint struct {
	*webhook.Receiver
	server *httptest.Server

	mu    sync.Mutex
	keys  map[any]string // by handle
	acked []string       // keys
}

// Ack notes what was acknowledged: the answer is on its way to the sender then.
func (e *endpoint) Ack(ctx context.Context, rs ...pawl.Receipt) error {
	e.mu.Lock()
	for _, r := range rs {
		if key, known := e.keys[r.Handle()]; known {
			e.acked = append(e.acked, key)
		}
	}
	e.mu.Unlock()
	return e.Receiver.Ack(ctx, rs...)
}

// Receive names attributes as the suite does: names of headers have no case.
func (e *endpoint) Receive(ctx context.Context, limit int) ([]pawl.Delivery, error) {
	ds, err := e.Receiver.Receive(ctx, limit)
	e.mu.Lock()
	defer e.mu.Unlock()
	for i := range ds {
		e.keys[ds[i].Handle] = ds[i].Key
		if kind, there := ds[i].Attributes["Type"]; there {
			ds[i].Attributes = map[string]string{"type": kind}
		}
	}
	return ds, err
}

func (o *outbound) open(t *testing.T) pawl.Source {
	s := senderNamed("standard")
	v := verifier(t, webhook.Config{Scheme: s.scheme(secrets(s.value)...), Keep: []string{"type"}})
	e := &endpoint{keys: map[any]string{}, Receiver: newReceiver(t, v, webhook.ReceiverConfig{ResponseTimeout: 4 * time.Second})}
	e.server = httptest.NewServer(e.Receiver)
	t.Cleanup(e.server.CloseClientConnections)
	o.mu.Lock()
	o.endpoints = append(o.endpoints, e)
	o.mu.Unlock()
	return e
}

func (o *outbound) abandon(s pawl.Source) {
	o.arrives(s.(*endpoint))
	o.mu.Lock()
	o.endpoints = slices.DeleteFunc(o.endpoints, func(e *endpoint) bool { return pawl.Source(e) == s })
	o.mu.Unlock()
	s.(*endpoint).server.CloseClientConnections()
}

// disconnect cuts the requests that a receiver holds: their senders come again.
func (o *outbound) disconnect(s pawl.Source) { s.(*endpoint).server.CloseClientConnections() }

// send begins to send, and goes on until the test ends or a receiver has said 200. Each message
// goes round the receivers by itself and so meets each of them. If all messages took turns
// together, one could meet the same receiver again and again.
func (o *outbound) send(ctx context.Context, m transporttest.Message) error {
	s := senderNamed("standard")
	scheme := s.scheme(secrets(s.value)...)
	o.mu.Lock()
	first := o.sent
	o.sent++
	o.mu.Unlock()
	go func() {
		turn := first - 1
		_ = patience.Poll(ctx, func() bool {
			turn++
			h, err := scheme.Sign(m.Key, time.Now(), m.Payload)
			if err != nil {
				panic(fmt.Sprint("sign: ", err))
			}
			for name, value := range m.Attributes {
				h.Set(name, value)
			}
			if a, err := post(ctx, o.url(turn), h, string(m.Payload)); err == nil && a.status == http.StatusOK {
				o.mu.Lock()
				o.told[m.Key] = true
				o.mu.Unlock()
				return true
			}
			return false
		})
	}()
	return nil
}

// url is that of a receiver, in turn.
func (o *outbound) url(turn int) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.endpoints) == 0 {
		return ""
	}
	return o.endpoints[turn%len(o.endpoints)].server.URL
}
