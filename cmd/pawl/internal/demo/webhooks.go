package demo

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/cmd/pawl/internal/broker"
	"github.com/pawl-go/pawl/internal/testbed/fleet"
	"github.com/pawl-go/pawl/transport/webhook"
)

// webhookFile is the descriptor of the listener that a worker inherits. All workers accept from the
// same one, so the sender has one address while workers come and go.
const webhookFile = 3

// responseLimit is how long a sender waits for a response.
const responseLimit = 10 * time.Second

// A receiver receives signed webhooks from the listener that all workers share.
type receiver struct{ *webhook.Receiver }

func newReceiver(secret string, hooks pawl.Hooks) (*receiver, error) {
	v, err := webhook.New(webhook.Config{Scheme: webhook.StandardWebhooks(webhook.Secret{Value: secret}), Hooks: hooks})
	if err != nil {
		return nil, err
	}
	r, err := webhook.NewReceiver(v, webhook.ReceiverConfig{Hooks: hooks})
	return &receiver{r}, err
}

// Run answers until ctx ends.
func (d *receiver) Run(ctx context.Context) error {
	file := os.NewFile(webhookFile, "webhooks")
	listener, err := net.FileListener(file)
	if err != nil {
		return err
	}
	_ = file.Close()
	server := &http.Server{Handler: d, ReadHeaderTimeout: responseLimit, BaseContext: func(net.Listener) context.Context { return ctx }}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), responseLimit)
	defer cancel()
	return server.Shutdown(closing)
}

// A sender signs webhooks and sends each until the response is 200, as good senders do.
type sender struct {
	scheme   webhook.Scheme
	secret   string
	listener *os.File // passed on to the workers
	url      string
	client   *http.Client

	sent, accepted atomic.Int64 // requests made, webhooks answered with 200
	open           atomic.Int64 // webhooks not answered with 200 yet
}

func newSender() (*sender, error) {
	s := &sender{secret: "whsec_" + base64.StdEncoding.EncodeToString([]byte(rand.Text()+rand.Text()))}
	s.scheme = webhook.StandardWebhooks(webhook.Secret{Value: s.secret})
	s.client = &http.Client{Transport: oneRequestEach(), Timeout: 2 * responseLimit}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s.url = "http://" + listener.Addr().String() + "/payments"
	s.listener, err = fleet.Share(listener.(*net.TCPListener))
	return s, errors.Join(err, listener.Close())
}

func (s *sender) close() { _ = s.listener.Close() }

// senders is the number of webhooks in flight.
const senders = 12

// sendAll returns when all webhooks are answered.
func (s *sender) sendAll(ctx context.Context, messages []broker.Message) error {
	s.open.Add(int64(len(messages)))
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	work := make(chan broker.Message)
	var all sync.WaitGroup
	for range senders {
		all.Go(func() {
			for m := range work {
				if err := s.send(ctx, m); err != nil {
					stop(err)
				}
			}
		})
	}
	for _, m := range messages {
		work <- m
	}
	close(work)
	all.Wait()
	return context.Cause(ctx)
}

// send sends one webhook until the response is 200. It signs each try anew.
func (s *sender) send(ctx context.Context, m broker.Message) error {
	for {
		code, err := s.try(ctx, m)
		switch {
		case code == http.StatusOK:
			s.accepted.Add(1)
			s.open.Add(-1)
			return nil
		case code >= 400 && code < 500:
			return fmt.Errorf("a signed webhook was refused: %d", code)
		case ctx.Err() != nil:
			return errors.Join(err, context.Cause(ctx))
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (s *sender) try(ctx context.Context, m broker.Message) (code int, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url, bytes.NewReader(m.Payload))
	if err != nil {
		return 0, err
	}
	if r.Header, err = s.scheme.Sign(m.Key, time.Now(), m.Payload); err != nil {
		return 0, err
	}
	s.sent.Add(1)
	answer, err := s.client.Do(r)
	if err != nil {
		return 0, err
	}
	_, _ = io.Copy(io.Discard, answer.Body)
	return answer.StatusCode, answer.Body.Close()
}
