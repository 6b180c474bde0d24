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
	"sync/atomic"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/transport/sqs"
	"github.com/pawl-go/pawl/transport/webhook"
)

// webhookFile is the descriptor of the listener that a worker inherits. All workers accept from the same one, so that the sender
// knows one address, whoever lives.
const webhookFile = 3

// answerLimit is how long a sender waits for its answer.
const answerLimit = 10 * time.Second

// A receiver is a [pawl.Source] of signed webhooks: 200 says that the database has the delivery, anything else that the sender must
// send it again.
type receiver struct {
	verifier *webhook.Verifier
	arrived  chan pawl.Delivery
}

func newReceiver(secret string) (*receiver, error) {
	v, err := webhook.New(webhook.Config{Scheme: webhook.StandardWebhooks(webhook.Secret{Value: secret})})
	return &receiver{verifier: v, arrived: make(chan pawl.Delivery)}, err
}

// Run answers until ctx ends.
func (r *receiver) Run(ctx context.Context) error {
	file := os.NewFile(webhookFile, "webhooks")
	listener, err := net.FileListener(file)
	if err != nil {
		return err
	}
	_ = file.Close()
	server := &http.Server{Handler: r, ReadHeaderTimeout: answerLimit, BaseContext: func(net.Listener) context.Context { return ctx }}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerLimit)
	defer cancel()
	return server.Shutdown(closing)
}

// ServeHTTP implements [http.Handler]. A sender that has gone loses nothing: it sends again, and that is a duplicate.
func (r *receiver) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	m, err := r.verifier.Read(w, request)
	if err != nil {
		webhook.Refuse(w, err)
		return
	}
	status := make(chan int, 1) // whoever answers must not wait for a sender that has gone
	d := pawl.Delivery{Key: m.Key, MessageID: m.ID, Body: m.Body, Attributes: m.Headers, SentAt: m.SentAt, VerifiedBy: m.Scheme, Handle: status}
	patience := time.After(answerLimit)
	select {
	case r.arrived <- d:
	case <-request.Context().Done():
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	case <-patience:
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	select {
	case code := <-status:
		w.WriteHeader(code)
	case <-patience:
		w.WriteHeader(http.StatusServiceUnavailable)
	}
}

// Receive implements [pawl.Source].
func (r *receiver) Receive(ctx context.Context, limit int) (ds []pawl.Delivery, err error) {
	select {
	case d := <-r.arrived:
		ds = append(ds, d)
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(time.Second):
	}
	for len(ds) > 0 && len(ds) < limit {
		select {
		case d := <-r.arrived:
			ds = append(ds, d)
		default:
			return ds, nil
		}
	}
	return ds, nil
}

// Ack implements [pawl.Source].
func (r *receiver) Ack(_ context.Context, receipts ...pawl.Receipt) error {
	for _, receipt := range receipts {
		if receipt.Valid() {
			receipt.Handle().(chan int) <- http.StatusOK
		}
	}
	return nil
}

// Release implements [pawl.Source].
func (r *receiver) Release(_ context.Context, _ time.Duration, ds ...pawl.Delivery) error {
	for _, d := range ds {
		d.Handle.(chan int) <- http.StatusServiceUnavailable
	}
	return nil
}

// A sender signs webhooks and sends each until it is answered 200, as the good ones do.
type sender struct {
	scheme   webhook.Scheme
	secret   string
	listener *os.File // the workers'
	url      string
	client   *http.Client

	sent, answered atomic.Int64 // requests made, webhooks answered 200
	open           atomic.Int64 // webhooks that are not
}

func newSender() (*sender, error) {
	secret := make([]byte, 32)
	_, _ = rand.Read(secret) // never fails
	s := &sender{secret: "whsec_" + base64.StdEncoding.EncodeToString(secret)}
	s.scheme = webhook.StandardWebhooks(webhook.Secret{Value: s.secret})
	s.client = &http.Client{Transport: oneRequestEach(), Timeout: 2 * answerLimit}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s.url = "http://" + listener.Addr().String() + "/payments"
	s.listener, err = listener.(*net.TCPListener).File()
	return s, errors.Join(err, listener.Close())
}

func (s *sender) close() { _ = s.listener.Close() }

// senders is how many webhooks are under way at once.
const senders = 12

// sendAll returns when all are answered.
func (s *sender) sendAll(ctx context.Context, messages []sqs.Message) error {
	s.open.Add(int64(len(messages)))
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	work := make(chan sqs.Message)
	ended := make(chan struct{})
	for range senders {
		go func() {
			defer func() { ended <- struct{}{} }()
			for m := range work {
				if err := s.send(ctx, m); err != nil {
					stop(err)
				}
			}
		}()
	}
	for _, m := range messages {
		work <- m
	}
	close(work)
	for range senders {
		<-ended
	}
	return context.Cause(ctx)
}

// send sends one webhook until it is answered 200. It is signed anew for each try.
func (s *sender) send(ctx context.Context, m sqs.Message) error {
	for {
		code, err := s.try(ctx, m)
		switch {
		case code == http.StatusOK:
			s.answered.Add(1)
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

func (s *sender) try(ctx context.Context, m sqs.Message) (code int, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url, bytes.NewReader(m.Body))
	if err != nil {
		return 0, err
	}
	if r.Header, err = s.scheme.Sign(m.Key, time.Now(), m.Body); err != nil {
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
