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

// A receiver passes the acceptance suite of sources. The sender retries until it gets 200.
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

// An outbound is a sender that retries at all current receivers in turn.
type outbound struct {
	t         *testing.T
	mu        sync.Mutex
	endpoints []*endpoint
	sent      int             // messages
	told      map[string]bool // keys that were answered 200
}

// arrives waits until the sender has the answers that an endpoint acknowledged, so that a crash
// loses none. After 200 polls it gives up: the sender may have left.
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

// Ack records the keys of the receipts. Their answers are on the way to the sender then.
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

// Receive renames attributes as the suite does, because header names have no case.
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

// disconnect cuts the requests that a receiver holds. Their senders retry.
func (o *outbound) disconnect(s pawl.Source) { s.(*endpoint).server.CloseClientConnections() }

// send starts to send m until the test ends or a receiver answers 200. Each message has its own
// turn, so that it tries each receiver; a shared turn could always give it the same one.
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

// url returns the URL of a receiver, in turn.
func (o *outbound) url(turn int) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.endpoints) == 0 {
		return ""
	}
	return o.endpoints[turn%len(o.endpoints)].server.URL
}
