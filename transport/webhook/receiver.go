package webhook

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/callback"
	"github.com/pawl-go/pawl/transport/internal/jsonptr"
)

// ReceiverConfig configures a [Receiver]. The zero value is fit for production.
type ReceiverConfig struct {
	// ResponseTimeout is how long a verified request waits for its response. Keep it below the
	// sender's timeout, or the response comes too late. If it is too short, a brief database outage
	// loses deliveries of senders that never retry. Default four fifths of Sender.Waits, or 8 s if
	// unknown; 100 ms to 1 min.
	ResponseTimeout time.Duration
	// MaxWaiting is how many verified requests may wait at once; more are answered 503. Each holds
	// its body in memory, at most Config.MaxBody. Default 256, 1 to 100,000.
	MaxWaiting int
	// ProducedAt returns when the sender created the event. A delivery so old that its key may have
	// been purged is then refused as stale. Default: unknown; see [CreatedAt].
	ProducedAt func(m Verified) time.Time
	// Respond responds to verified requests that are no deliveries and reports whether it did.
	// Default: [SlackChallenge] for Slack, none for others.
	Respond func(w http.ResponseWriter, m Verified) bool
	// Hooks receive the events of deliveries between verification and response. Default: log to
	// [log/slog.Default].
	Hooks pawl.Hooks
}

const (
	usualTimeout   = 8 * time.Second
	leastTimeout   = 100 * time.Millisecond
	longestTimeout = time.Minute
	// longestBody is the largest delivery that can be stored.
	longestBody = 4 * mebibyte
	// retryAfter is the Retry-After of a 503.
	retryAfter = 5 * time.Second
	// longestMessageID bounds the sender's id, possibly from a body, in logs and errors.
	longestMessageID = 200
	// poll is how long Receive waits for a first delivery.
	poll = time.Second
)

// ErrUnavailable means that no consumer took a delivery in time. The sender has to send it again.
var ErrUnavailable = errors.New("the delivery was not taken")

// A Receiver answers webhooks. It is an [http.Handler] for the sender and a [pawl.Source] for the
// consumer. Each request waits until the consumer has a result from the database:
//
//	200   the outcome is in the database: succeeded, stored, a duplicate, or a dead letter
//	503   the outcome is unknown, with Retry-After: database down, too many waiting, shutdown
//	4xx   the request could not be verified, see [Refusal]
//
// Make one with [NewReceiver].
type Receiver struct {
	verifier *Verifier
	cfg      ReceiverConfig

	mu     sync.Mutex
	queue  []*arrival // not yet received by the consumer
	inHand int        // number of arrivals that wait for a result
	// arrived is closed when the empty queue gets an arrival; nil if Receive does not wait.
	arrived chan struct{}
	stopped bool // the consumer has stopped
}

// An arrival is one waiting request.
type arrival struct {
	delivery pawl.Delivery
	deadline time.Time
	result   chan error // capacity 1: the first result counts
}

var (
	_ http.Handler = (*Receiver)(nil)
	_ pawl.Source  = (*Receiver)(nil)
)

// NewReceiver returns a receiver for requests that v verifies, or [pawl.ErrArgumentInvalid].
func NewReceiver(v *Verifier, c ReceiverConfig) (*Receiver, error) {
	if v == nil {
		return nil, invalid("webhook.receiver", errors.New("the Verifier is missing"))
	}
	if err := c.complete(v); err != nil {
		return nil, invalid("webhook.receiver", err)
	}
	return &Receiver{verifier: v, cfg: c}, nil
}

func (c *ReceiverConfig) complete(v *Verifier) error {
	usual := usualTimeout
	if waits := v.cfg.Scheme.Sender().Waits; waits > 0 {
		usual = waits / 5 * 4
	}
	c.ResponseTimeout = cmp.Or(c.ResponseTimeout, usual)
	c.MaxWaiting = cmp.Or(c.MaxWaiting, 256)
	if c.Respond == nil && v.cfg.Scheme.Name() == "slack" {
		c.Respond = SlackChallenge
	}
	switch {
	case c.ResponseTimeout < leastTimeout || c.ResponseTimeout > longestTimeout:
		return fmt.Errorf("the ResponseTimeout is %s; %s to %s are allowed", c.ResponseTimeout, leastTimeout, longestTimeout)
	case c.MaxWaiting < 1 || c.MaxWaiting > 100_000:
		return fmt.Errorf("the MaxWaiting is %d; 1 to 100000 are allowed", c.MaxWaiting)
	case v.cfg.MaxBody > longestBody:
		return fmt.Errorf("the verifier takes bodies of %d octets; at most %d can be stored", v.cfg.MaxBody, longestBody)
	}
	return nil
}

// ServeHTTP verifies one request, waits for its outcome in the database, and answers.
func (r *Receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	m, err := r.verifier.Read(w, req)
	if err != nil {
		Refuse(w, err)
		return
	}
	responded, err := r.respond(w, m)
	switch {
	case callback.CauseOf(err) == http.ErrAbortHandler: //nolint:errorlint // as net/http does
		panic(http.ErrAbortHandler)
	case err != nil:
		r.emit(req.Context(), pawl.Event{Kind: pawl.EventError, Op: "webhook.accept", Key: m.Key, MessageID: m.ID, Err: err})
		writeStatus(w, http.StatusInternalServerError)
		return
	case responded:
		return
	}
	status := http.StatusOK
	if err := r.Accept(req.Context(), m); err != nil {
		status = http.StatusServiceUnavailable
		w.Header().Set("Retry-After", strconv.Itoa(int(retryAfter.Seconds())))
	}
	writeStatus(w, status)
}

func (r *Receiver) respond(w http.ResponseWriter, m Verified) (bool, error) {
	if r.cfg.Respond == nil {
		return false, nil
	}
	return callback.Get("ReceiverConfig.Respond", func() bool { return r.cfg.Respond(w, m) })
}

// Accept passes a delivery to the consumer and returns nil once the database holds its outcome. Use
// it for deliveries that did not come over HTTP, such as those of a [Reconciler]. It waits for
// ResponseTimeout at most.
//
// Accept returns [ErrUnavailable] otherwise, also if ctx ended first. The delivery may still take
// effect; if it comes again, it is a duplicate.
func (r *Receiver) Accept(ctx context.Context, m Verified) error {
	a := &arrival{delivery: r.delivery(m), deadline: time.Now().Add(r.cfg.ResponseTimeout), result: make(chan error, 1)}
	a.delivery.Handle = a
	err := r.enter(a)
	if err == nil {
		err = r.await(ctx, a)
		r.leave(a)
	}
	if err != nil {
		r.emit(ctx, pawl.Event{Kind: pawl.EventHandleLost, Op: "webhook.accept", Key: m.Key, MessageID: a.delivery.MessageID, Err: err})
		return fmt.Errorf("webhook.accept: %w: %w", ErrUnavailable, err)
	}
	r.emit(ctx, pawl.Event{Kind: pawl.EventAcknowledged, Op: "webhook.accept", Key: m.Key, MessageID: a.delivery.MessageID})
	return nil
}

func (r *Receiver) delivery(m Verified) pawl.Delivery {
	d := pawl.Delivery{Key: m.Key, KeyFault: m.KeyFault, Fault: m.Fault, SemanticKey: m.SemanticKey, Fingerprint: m.Fingerprint, MessageID: m.ID,
		Payload: m.Body, Attributes: m.UnsignedHeaders, SentAt: m.SentAt, VerifiedBy: m.Scheme + "/" + m.Secret}
	if d.MessageID == "" {
		d.MessageID = "sha256:" + pawl.FingerprintOf(m.Body).String()
	}
	if len(d.MessageID) > longestMessageID {
		d.MessageID = strings.ToValidUTF8(d.MessageID[:longestMessageID], "") + "…"
	}
	if again, err := strconv.Atoi(m.UnsignedHeaders["X-Slack-Retry-Num"]); err == nil && again > 0 {
		d.Receives = again + 1 // only Slack sends a retry count
	}
	if r.cfg.ProducedAt != nil {
		var fault error
		d.ProducedAt, fault = callback.Get("ReceiverConfig.ProducedAt", func() time.Time { return r.cfg.ProducedAt(m) })
		if d.Fault == nil {
			d.Fault = fault
		}
	}
	return d
}

var (
	errStopped   = errors.New("the receiver is stopping")
	errFull      = errors.New("too many deliveries wait")
	errImpatient = errors.New("the consumer did not take it in time")
)

func (r *Receiver) enter(a *arrival) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.stopped:
		return errStopped
	case r.inHand >= r.cfg.MaxWaiting:
		return errFull
	}
	r.inHand++
	r.offer(a)
	return nil
}

// offer adds an arrival to the queue. The caller holds r.mu.
func (r *Receiver) offer(a *arrival) {
	r.queue = append(r.queue, a)
	if r.arrived != nil {
		close(r.arrived)
		r.arrived = nil
	}
}

func (r *Receiver) await(ctx context.Context, a *arrival) error {
	patience := time.NewTimer(time.Until(a.deadline))
	defer patience.Stop()
	select {
	case err := <-a.result:
		return err
	case <-ctx.Done():
		return a.toldOr(ctx.Err())
	case <-patience.C:
		return a.toldOr(errImpatient)
	}
}

// toldOr returns the result of a, or else err. A last-moment result counts: it is the database's.
func (a *arrival) toldOr(err error) error {
	select {
	case err = <-a.result:
	default:
	}
	return err
}

// leave removes an arrival whose request ends. The consumer may still have its delivery.
func (r *Receiver) leave(a *arrival) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.inHand--
	r.queue = slices.DeleteFunc(r.queue, func(q *arrival) bool { return q == a })
	a.tell(errImpatient) // it is not offered again
}

// tell sets the result of the request unless it has one.
func (a *arrival) tell(err error) {
	select {
	case a.result <- err:
	default:
	}
}

// Receive waits up to a second and returns waiting deliveries. If ctx has ended, it stops
// the receiver: waiting and new requests are answered 503 until Receive is called again.
func (r *Receiver) Receive(ctx context.Context, limit int) ([]pawl.Delivery, error) {
	wait := time.NewTimer(poll)
	defer wait.Stop()
	for {
		batch, arrived := r.take(ctx, limit)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if len(batch) > 0 {
			r.emit(ctx, pawl.Event{Kind: pawl.EventReceived, Op: "webhook.receive", Count: len(batch)})
			return batch, nil
		}
		select {
		case <-arrived:
		case <-ctx.Done():
		case <-wait.C:
			return nil, nil
		}
	}
}

// take removes up to limit arrivals from the queue. If it is empty, arrived is closed at the next.
func (r *Receiver) take(ctx context.Context, limit int) (batch []pawl.Delivery, arrived <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopped = ctx.Err() != nil; r.stopped {
		for _, a := range r.queue {
			a.tell(errStopped)
		}
		r.queue = nil
		return nil, nil
	}
	n := min(limit, len(r.queue))
	for _, a := range r.queue[:n] {
		batch = append(batch, a.delivery)
	}
	r.queue = slices.Delete(r.queue, 0, n)
	if n == 0 && r.arrived == nil {
		r.arrived = make(chan struct{})
	}
	return batch, r.arrived
}

// Ack answers 200 to the requests of these receipts.
func (r *Receiver) Ack(_ context.Context, rs ...pawl.Receipt) error {
	invalid := 0
	for _, one := range rs {
		a, ours := one.Handle().(*arrival)
		if !one.Valid() || !ours {
			invalid++
			continue
		}
		a.tell(nil)
	}
	if invalid > 0 {
		return fmt.Errorf("webhook.ack: invalid receipts or receipts of another source: %d", invalid)
	}
	return nil
}

// Release offers deliveries again after the delay, or answers 503 if their requests end before.
func (r *Receiver) Release(ctx context.Context, delay time.Duration, ds ...pawl.Delivery) error {
	for _, d := range ds {
		a, ours := d.Handle.(*arrival)
		if !ours {
			return errors.New("webhook.release: a delivery of another source")
		}
		if r.again(a, delay) {
			time.AfterFunc(delay, func() { r.offerAgain(a) })
		}
	}
	r.emit(ctx, pawl.Event{Kind: pawl.EventReleased, Op: "webhook.release", Count: len(ds)})
	return nil
}

// again reports whether an arrival can wait for the delay. If not, it answers 503.
func (r *Receiver) again(a *arrival, delay time.Duration) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.stopped:
		a.tell(errStopped)
	case time.Now().Add(delay).After(a.deadline):
		a.tell(errImpatient)
	}
	return len(a.result) == 0
}

func (r *Receiver) offerAgain(a *arrival) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopped {
		a.tell(errStopped)
	}
	if len(a.result) == 0 {
		r.offer(a)
	}
}

// Info tells the consumer to remember keys for the sender's Retention, to store deliveries
// unchanged with the headers of the scheme and Config.Keep, and to acknowledge at once.
func (r *Receiver) Info() pawl.SourceInfo {
	return pawl.SourceInfo{RedeliveryHorizon: r.verifier.cfg.Scheme.Sender().Retention,
		Evidence: true, EvidenceAttributes: slices.Clone(r.verifier.cfg.Keep), AckAtOnce: true}
}

func (r *Receiver) emit(ctx context.Context, e pawl.Event) {
	e.Scope = r.verifier.cfg.Scheme.Name()
	r.cfg.Hooks.Emit(context.WithoutCancel(ctx), e)
}

// CreatedAt is a [ReceiverConfig.ProducedAt] that reads seconds since 1970 from the JSON body at an
// RFC 6901 pointer, such as Stripe's "/created". It panics if the pointer is invalid.
func CreatedAt(pointer string) func(Verified) time.Time {
	if err := jsonptr.Check(pointer); err != nil {
		panic("webhook: " + err.Error())
	}
	return func(m Verified) time.Time {
		text, _ := jsonptr.TextAt(m.Body, pointer)
		seconds, err := readTimestamp(text)
		if err != nil {
			return time.Time{}
		}
		return time.Unix(seconds, 0).UTC()
	}
}

// SlackChallenge answers Slack's url_verification request, which is no delivery.
func SlackChallenge(w http.ResponseWriter, m Verified) bool {
	var question struct{ Type, Challenge string }
	if json.Unmarshal(m.Body, &question) != nil || question.Type != "url_verification" {
		return false
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	_, _ = io.WriteString(w, question.Challenge) // the sender may have gone
	return true
}
