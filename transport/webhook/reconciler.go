package webhook

import (
	"cmp"
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

// Sent is one attempt of a delivery in the sender's records.
type Sent struct {
	// Key is the key of the delivery under [KeyID].
	Key string
	// ID is the sender's id of this attempt.
	ID string
	// At is the time of the attempt.
	At time.Time
	// Accepted reports whether it was answered 2xx.
	Accepted bool
}

// A Ledger lists what a sender has sent. [GitHubDeliveries] is one.
type Ledger interface {
	// Sent yields the attempts since a time, newest first. It ends with the first error.
	Sent(ctx context.Context, since time.Time) iter.Seq2[Sent, error]
	// Fetch returns a delivery as the sender shows it: headers, with canonical names, and body.
	Fetch(ctx context.Context, s Sent) (http.Header, []byte, error)
	// Resend makes the sender send the delivery again, signed, to the receiver.
	Resend(ctx context.Context, s Sent) error
}

// ReconcilerConfig configures a [Reconciler]. Receiver, Ledger and Missing are required.
type ReconcilerConfig struct {
	// Receiver accepts the missing deliveries.
	Receiver *Receiver
	// Ledger lists the sender's deliveries.
	Ledger Ledger
	// Missing returns those keys that the consumer does not have: [inbox.Missing] with its database
	// and name.
	//
	// [inbox.Missing]: https://pkg.go.dev/github.com/pawl-go/pawl/inbox#Missing
	Missing func(ctx context.Context, keys []string) ([]string, error)
	// Lookback is how far back the reconciler looks, up to the sender's Retention: purged
	// deliveries would look missing and run again. Default 3 days.
	Lookback time.Duration
	// Since excludes earlier attempts. Set it to when this consumer took over, or it runs
	// deliveries that an older system has handled. Default: the start of the Lookback.
	Since time.Time
	// Grace is the minimum age of an attempt; a younger one may be in progress. Default 2 min, 0 to
	// Lookback; a negative one is none.
	Grace time.Duration
	// Every is the interval between rounds of Run. Default 5 min, at least 1 s.
	Every time.Duration
	// Resend makes the sender send missing deliveries again, signed. Default: the ledger's copy.
	Resend bool
	// Hooks receive the errors of Run and each delivery that was missing. Default: log to
	// [log/slog.Default].
	Hooks pawl.Hooks
}

// A Reconciler recovers deliveries that a sender does not retry, or not for long enough. It
// compares the sender's records with the inbox and passes on the missing deliveries. Several
// processes may reconcile at once, since a second copy is a duplicate.
//
// A key that an operator has removed looks missing, so its delivery runs again. If a delivery took
// effect under another id with the same SemanticKey, its own key stays missing: each round passes
// it on, and it is a duplicate each time.
type Reconciler struct{ cfg ReconcilerConfig }

// mostKeys is how many keys Missing gets at once.
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
	c.Lookback = cmp.Or(c.Lookback, 3*day)
	c.Grace = max(cmp.Or(c.Grace, 2*time.Minute), 0)
	c.Every = cmp.Or(c.Every, 5*time.Minute)
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

// A Report is the result of one round.
type Report struct {
	Listed  int // deliveries; several attempts of one count once
	Missing int // not in the inbox
	// Accepted counts the Missing that were answered 2xx: look for another consumer behind this
	// address, or a database that lost commits.
	Accepted int
	Inserted int // missing ones whose outcome the database now holds
	Resent   int // missing ones that the sender was asked to resend
}

// Once runs one round. An error ends it; the report then has what was done before.
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

// close passes on the missing deliveries of a page.
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
			// Continues with the others.
			failures = append(failures, fmt.Errorf("webhook.reconcile: delivery %s: %w", s.Key, err))
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
		return fmt.Errorf("the ledger shows it under the key %q", m.Key)
	}
	if err := r.cfg.Receiver.Accept(ctx, m); err != nil {
		return err
	}
	report.Inserted++
	return nil
}

func (r *Reconciler) scope() string { return r.cfg.Receiver.verifier.cfg.Scheme.Name() }

// Run runs a round at once and then every Every, until ctx is cancelled. It always returns nil:
// errors are events, and the next round retries.
func (r *Reconciler) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		if _, err := r.Once(ctx); err != nil && ctx.Err() == nil {
			r.cfg.Hooks.Emit(ctx, pawl.Event{Kind: pawl.EventError, Op: "webhook.reconcile", Scope: r.scope(), Err: err})
		}
		pace.Sleep(ctx, r.cfg.Every)
	}
	return nil
}
