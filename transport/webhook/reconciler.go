package webhook

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/callback"
	"github.com/pawl-go/pawl/internal/pace"
)

// Sent is one attempt of a delivery, as its sender remembers it.
type Sent struct {
	// Key is the one under which a receiver with [KeyID] remembers the delivery.
	Key string
	// ID is the sender's own of this attempt.
	ID string
	// At is when it was attempted.
	At time.Time
	// Accepted: it was answered 2xx.
	Accepted bool
}

// A Ledger is what a sender says that it has sent. [GitHubDeliveries] is one.
type Ledger interface {
	// Sent yields the attempts since a time, newest first. It ends with the first error.
	Sent(ctx context.Context, since time.Time) iter.Seq2[Sent, error]
	// Fetch returns a delivery as the sender shows it: headers, with canonical names, and body.
	Fetch(ctx context.Context, s Sent) (http.Header, []byte, error)
	// Resend has the sender send it again, signed, to the receiver.
	Resend(ctx context.Context, s Sent) error
}

// ReconcilerConfig of a [Reconciler]. Receiver, Ledger and Missing are required.
type ReconcilerConfig struct {
	// Receiver is the door through which goes what was missing.
	Receiver *Receiver
	// Ledger is the sender's.
	Ledger Ledger
	// Missing returns those keys that the consumer does not remember: [inbox.Missing] with its database and name.
	//
	// [inbox.Missing]: https://pkg.go.dev/github.com/pawl-go/pawl/inbox#Missing
	Missing func(ctx context.Context, keys []string) ([]string, error)
	// Lookback is how far back it looks. No further than the sender's Retention: what the inbox has forgotten would look missing, and run
	// again. Default 3 days.
	Lookback time.Duration
	// Since leaves alone what was attempted before: set it to the moment from which this consumer takes the sender's deliveries, or the first
	// round hands on days of what an older system has handled. Default: the beginning of the Lookback.
	Since time.Time
	// Grace is how old an attempt must be: a younger one may be under way. Default 2 min, 0 to Lookback; negative is none.
	Grace time.Duration
	// Every is the pause between two rounds of Run. Default 5 min, 1 s at least.
	Every time.Duration
	// Resend has the sender send again what is missing, instead of taking it from the ledger: it comes signed and by itself, once the
	// receiver can be reached.
	Resend bool
	// Hooks receive what Run ended with, and each delivery that was found missing.
	Hooks pawl.Hooks
}

// A Reconciler closes the gaps that a sender leaves who does not try again, or not for as long as a receiver was away: it compares what the
// sender says it has sent with what the inbox remembers, and hands on what is missing. A delivery that comes twice that way is a duplicate,
// so several processes may reconcile at once. What an operator has forgotten looks missing too, and runs as new. A delivery that took effect under
// another id, with the same SemanticKey, is not remembered by its own: it is looked at in every round of the Lookback, and is a duplicate each time.
type Reconciler struct{ cfg ReconcilerConfig }

// mostKeys is how many keys are compared at once.
const mostKeys = 500

// NewReconciler returns a reconciler, or [pawl.ErrArgumentInvalid].
func NewReconciler(c ReconcilerConfig) (*Reconciler, error) {
	if err := c.complete(); err != nil {
		return nil, invalid("webhook.reconciler", err)
	}
	return &Reconciler{c}, nil
}

func (c *ReconcilerConfig) complete() error {
	if c.Receiver == nil || c.Ledger == nil || c.Missing == nil {
		return errors.New("the fields Receiver, Ledger and Missing are required")
	}
	if _, byID := c.Receiver.verifier.cfg.Key.(keyID); !byID {
		return errors.New("the verifier's Key must be KeyID: a ledger names deliveries by the sender's id")
	}
	c.Lookback = orDefault(c.Lookback, 3*day)
	c.Grace = max(orDefault(c.Grace, 2*time.Minute), 0)
	c.Every = orDefault(c.Every, 5*time.Minute)
	remembered := c.Receiver.Info().RedeliveryHorizon
	switch {
	case c.Lookback < 0 || c.Lookback > remembered:
		return fmt.Errorf("the Lookback is %s; up to %s are remembered, and what is older would run again", c.Lookback, remembered)
	case c.Grace > c.Lookback:
		return fmt.Errorf("the Grace is %s, longer than the Lookback of %s", c.Grace, c.Lookback)
	case c.Every < time.Second:
		return fmt.Errorf("the pause Every is %s, shorter than 1s", c.Every)
	}
	return nil
}

// A Report is what one round has found.
type Report struct {
	Listed   int // deliveries; attempts of one count once
	Missing  int // that the inbox does not remember
	Accepted int // of these, how many were answered 2xx: look for another consumer behind this address, or a database that lost commits
	Inserted int // whose outcome the database holds now
	Resent   int // that the sender was asked for
}

// Once compares once. An error ends the round; what it did until then is in the report.
func (r *Reconciler) Once(ctx context.Context) (Report, error) {
	var report Report
	now, seen := time.Now(), map[string]bool{}
	var page []Sent
	since := now.Add(-r.cfg.Lookback)
	if r.cfg.Since.After(since) {
		since = r.cfg.Since
	}
	err := callback.Do("Ledger.Sent", func() error {
		for s, err := range r.cfg.Ledger.Sent(ctx, since) {
			if err != nil {
				return fmt.Errorf("webhook.reconcile: %w", err)
			}
			if seen[s.Key] || s.Key == "" || s.At.Before(since) || now.Sub(s.At) < r.cfg.Grace {
				continue
			}
			seen[s.Key] = true
			report.Listed++
			if page = append(page, s); len(page) == mostKeys {
				if err := r.close(ctx, page, &report); err != nil {
					return err
				}
				page = page[:0]
			}
		}
		return nil
	})
	if err != nil {
		return report, err
	}
	return report, r.close(ctx, page, &report)
}

// close hands on what of some deliveries is missing.
func (r *Reconciler) close(ctx context.Context, page []Sent, report *Report) error {
	if len(page) == 0 {
		return nil
	}
	byKey, keys := map[string]Sent{}, make([]string, len(page))
	for i, s := range page {
		byKey[s.Key], keys[i] = s, s.Key
	}
	var missing []string
	err := callback.Do("ReconcilerConfig.Missing", func() (err error) {
		missing, err = r.cfg.Missing(ctx, keys)
		return err
	})
	if err != nil {
		return fmt.Errorf("webhook.reconcile: %w", err)
	}
	var failures []error
	for _, key := range missing {
		s := byKey[key]
		report.Missing++
		if s.Accepted {
			report.Accepted++
		}
		if err := r.handOn(ctx, s, report); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			failures = append(failures, fmt.Errorf("webhook.reconcile: delivery %s: %w", s.Key, err)) // the others are not its hostages
		}
	}
	return errors.Join(failures...)
}

func (r *Reconciler) handOn(ctx context.Context, s Sent, report *Report) error {
	r.cfg.Hooks.Emit(ctx, pawl.Event{Kind: pawl.EventWebhookMissing, Op: "webhook.reconcile", Scope: r.scope(), Key: s.Key, MessageID: s.ID, Age: time.Since(s.At)})
	if r.cfg.Resend {
		if err := callback.Do("Ledger.Resend", func() error { return r.cfg.Ledger.Resend(ctx, s) }); err != nil {
			return err
		}
		report.Resent++
		return nil
	}
	var h http.Header
	var body []byte
	err := callback.Do("Ledger.Fetch", func() (err error) {
		h, body, err = r.cfg.Ledger.Fetch(ctx, s)
		return err
	})
	if err != nil {
		return err
	}
	m, err := r.cfg.Receiver.verifier.Vouched("ledger", h, body)
	switch {
	case err != nil:
		return err
	case m.Key != s.Key:
		return fmt.Errorf("what the ledger shows of it is named %q", m.Key)
	}
	if err := r.cfg.Receiver.Accept(ctx, m); err != nil {
		return err
	}
	report.Inserted++
	return nil
}

func (r *Reconciler) scope() string { return r.cfg.Receiver.verifier.cfg.Scheme.Name() }

// Run makes a round at once and then every Every, until ctx ends, and returns nil. It returns no
// error: what fails is an event, and the next round tries it again.
func (r *Reconciler) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		if _, err := r.Once(ctx); err != nil && ctx.Err() == nil {
			r.cfg.Hooks.Emit(ctx, pawl.Event{Kind: pawl.EventError, Op: "webhook.reconcile", Scope: r.scope(), Err: err})
		}
		pace.Sleep(ctx, r.cfg.Every)
	}
	return nil
}
