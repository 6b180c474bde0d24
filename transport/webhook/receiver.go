package webhook

import (
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

// ReceiverConfig of a [Receiver]. The zero value is fit for production.
type ReceiverConfig struct {
	// ResponseTimeout is how long a request waits for its answer, from the moment it was verified. Keep it below the time after which the sender
	// gives up: longer answers a sender that has gone, shorter turns a database that is away for a moment into a lost delivery of a sender that never
	// retries. Default four fifths of Sender.Waits, 8 s where that is not known; 100 ms to 1 min.
	ResponseTimeout time.Duration
	// MaxWaiting is how many verified requests may wait at once; more are answered 503. Each holds its body in memory, at most
	// Config.MaxBody. Default 256, 1 to 100,000.
	MaxWaiting int
	// ProducedAt tells when the sender made what it announces, for deliveries that come after their key was forgotten: they are refused
	// as stale, not run as new. Default: it is not told; see [CreatedAt].
	ProducedAt func(m Verified) time.Time
	// Answer answers a verified request that is no delivery, such as [SlackChallenge], and says whether it has. Default: of Slack that,
	// of others nothing.
	Answer func(w http.ResponseWriter, m Verified) bool
	// Hooks receive what happens to deliveries between their verification and their answer.
	Hooks pawl.Hooks
}

const (
	usualTimeout   = 8 * time.Second
	leastTimeout   = 100 * time.Millisecond
	longestTimeout = time.Minute
	// longestBody is what a delivery can hold when it is stored.
	longestBody = 4 * mebibyte
	// retryAfter is what a sender is told that has to come again.
	retryAfter = 5 * time.Second
	// longestMessageID is how much of a sender's id, which may be a whole body's, goes into logs and errors.
	longestMessageID = 200
	// poll is how long Receive waits for a first delivery.
	poll = time.Second
)

// ErrUnavailable says that no consumer took a delivery in time: the sender has to send it again.
var ErrUnavailable = errors.New("the delivery was not taken")

// A Receiver answers webhooks. It is an [http.Handler] for the sender and a [pawl.Source] for the consumer that takes the deliveries; each
// request is held until the consumer has an answer of the database, and answered then:
//
//	200   its outcome is in the database: it took effect, has been stored, is a duplicate, or is a dead letter for a person
//	503   it is not known to be there, with Retry-After: the database is away, too many wait, the process stops
//	4xx   it could not be verified, see [Refusal]
//
// Its zero value is of no use; see [NewReceiver].
type Receiver struct {
	verifier *Verifier
	cfg      ReceiverConfig

	mu      sync.Mutex
	queue   []*arrival    // not handed out
	inHand  int           // arrivals that wait for an answer
	arrived chan struct{} // closed when the queue gets its first; nil if nothing waits
	stopped bool          // the consumer has ended
}

// An arrival is one request in hand.
type arrival struct {
	delivery pawl.Delivery
	deadline time.Time
	answer   chan error // of capacity 1: the first answer counts
}

var (
	_ http.Handler = (*Receiver)(nil)
	_ pawl.Source  = (*Receiver)(nil)
)

// NewReceiver returns a receiver of what v verifies, or [pawl.ErrArgumentInvalid].
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
	c.ResponseTimeout = orDefault(c.ResponseTimeout, usual)
	c.MaxWaiting = orDefault(c.MaxWaiting, 256)
	if c.Answer == nil && v.cfg.Scheme.Name() == "slack" {
		c.Answer = SlackChallenge
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

// ServeHTTP verifies one request, waits for the database's word, and answers.
func (r *Receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	m, err := r.verifier.Read(w, req)
	if err != nil {
		Refuse(w, err)
		return
	}
	answered, err := r.answered(w, m)
	switch {
	case callback.CauseOf(err) == http.ErrAbortHandler: //nolint:errorlint // it is compared so by net/http
		panic(http.ErrAbortHandler)
	case err != nil:
		r.emit(req.Context(), pawl.Event{Kind: pawl.EventError, Op: "webhook.accept", Key: m.Key, MessageID: m.ID, Err: err})
		plain(w, http.StatusInternalServerError)
		return
	case answered:
		return
	}
	status := http.StatusOK
	if err := r.Accept(req.Context(), m); err != nil {
		status = http.StatusServiceUnavailable
		w.Header().Set("Retry-After", strconv.Itoa(int(retryAfter.Seconds())))
	}
	plain(w, status)
}

// answered asks Answer whether the request is no delivery, and is answered.
func (r *Receiver) answered(w http.ResponseWriter, m Verified) (bool, error) {
	if r.cfg.Answer == nil {
		return false, nil
	}
	return callback.Get("ReceiverConfig.Answer", func() bool { return r.cfg.Answer(w, m) })
}

// Accept hands a delivery to the consumer, and returns nil once the database holds its outcome: for deliveries that came another way than over
// HTTP, such as those that a [Reconciler] found. It waits no longer than ResponseTimeout.
//
// Errors: [ErrUnavailable], also if ctx ended first; the delivery may have taken effect nevertheless, and is absorbed when it comes again.
func (r *Receiver) Accept(ctx context.Context, m Verified) error {
	a := &arrival{delivery: r.delivery(m), deadline: time.Now().Add(r.cfg.ResponseTimeout), answer: make(chan error, 1)}
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
		d.Receives = again + 1 // the one sender here that says so
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
	errStopped   = errors.New("nobody takes deliveries any more: the process stops")
	errFull      = errors.New("too many deliveries wait")
	errImpatient = errors.New("nobody took it in time")
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

// offer puts an arrival into the queue. The lock is held.
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
	case err := <-a.answer:
		return err
	case <-ctx.Done():
		return a.toldOr(ctx.Err())
	case <-patience.C:
		return a.toldOr(errImpatient)
	}
}

// toldOr is what a was answered, or else err. An answer that came at the last moment counts: the database has decided.
func (a *arrival) toldOr(err error) error {
	select {
	case err = <-a.answer:
	default:
	}
	return err
}

// leave ends the stay of an arrival. If the consumer has it, it is decided by the database alone, and the sender is not told.
func (r *Receiver) leave(a *arrival) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.inHand--
	r.queue = slices.DeleteFunc(r.queue, func(q *arrival) bool { return q == a })
	a.tell(errImpatient) // so that it is not offered again
}

// tell answers, unless it was answered before.
func (a *arrival) tell(err error) {
	select {
	case a.answer <- err:
	default:
	}
}

// Receive waits for at most a second and hands out what waits. A ctx that has ended stops the receiver: what waits, and what comes
// until Receive is called anew, is answered 503.
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

// take takes from the queue; if it is empty, arrived tells of the next.
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

// Ack answers 200 to the requests whose outcome the database holds.
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
		return fmt.Errorf("webhook.ack: receipts that no commit of a delivery from here has made: %d", invalid)
	}
	return nil
}

// Release offers deliveries again after the delay, while their requests have the patience; the others are answered 503.
func (r *Receiver) Release(ctx context.Context, delay time.Duration, ds ...pawl.Delivery) error {
	for _, d := range ds {
		a, ours := d.Handle.(*arrival)
		if !ours {
			return errors.New("webhook.release: a delivery that is not from here")
		}
		if r.again(a, delay) {
			time.AfterFunc(delay, func() { r.offerAgain(a) })
		}
	}
	r.emit(ctx, pawl.Event{Kind: pawl.EventReleased, Op: "webhook.release", Count: len(ds)})
	return nil
}

// again reports whether an arrival can wait that long; if not it is answered.
func (r *Receiver) again(a *arrival, delay time.Duration) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.stopped:
		a.tell(errStopped)
	case time.Now().Add(delay).After(a.deadline):
		a.tell(errImpatient)
	}
	return len(a.answer) == 0
}

func (r *Receiver) offerAgain(a *arrival) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopped {
		a.tell(errStopped)
	}
	if len(a.answer) == 0 {
		r.offer(a)
	}
}

// Info says that a consumer must remember for as long as the sender's Retention, that signed deliveries are kept as they came, with the
// headers that the scheme and Config.Keep name, and that senders wait for their answers.
func (r *Receiver) Info() pawl.SourceInfo {
	return pawl.SourceInfo{RedeliveryHorizon: r.verifier.cfg.Scheme.Sender().Retention,
		Evidence: true, EvidenceAttributes: slices.Clone(r.verifier.cfg.Keep), AckAtOnce: true}
}

func (r *Receiver) emit(ctx context.Context, e pawl.Event) {
	e.Scope = r.verifier.cfg.Scheme.Name()
	r.cfg.Hooks.Emit(context.WithoutCancel(ctx), e)
}

// CreatedAt is a [ReceiverConfig.ProducedAt] that reads seconds since 1970 from a number in the JSON body, at an RFC 6901 pointer such as
// "/created", which is Stripe's. It panics if the pointer is none.
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

// SlackChallenge answers Slack's question whether this is its endpoint, url_verification, which is no delivery.
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
