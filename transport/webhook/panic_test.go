package webhook_test

import (
	"context"
	"errors"
	"iter"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/transport/webhook"
)

// If a function of the configuration panics or exits on a delivery, the delivery becomes one dead
// letter and is answered 200. Other deliveries succeed.
func TestReceiver_PanicIsADeadLetter(t *testing.T) {
	t.Parallel()
	bad := func(body []byte) bool { return strings.Contains(string(body), "bad") }
	for name, change := range map[string]func(b *bed, end func()){
		"Key": func(b *bed, end func()) {
			b.verifier.Key = webhook.KeyFunc(func(m webhook.Verified) string {
				if bad(m.Body) {
					end()
				}
				return m.ID
			})
		},
		"SemanticKey": func(b *bed, end func()) {
			b.verifier.SemanticKey = webhook.KeyFunc(func(m webhook.Verified) string {
				if bad(m.Body) {
					end()
				}
				return m.ID
			})
		},
		"Fingerprint": func(b *bed, end func()) {
			b.verifier.Fingerprint = func(body []byte) pawl.Fingerprint {
				if bad(body) {
					end()
				}
				return pawl.FingerprintOf(body)
			}
		},
		"ProducedAt": func(b *bed, end func()) {
			b.config.ProducedAt = func(m webhook.Verified) time.Time {
				if bad(m.Body) {
					end()
				}
				return time.Time{}
			}
		},
	} {
		for how, end := range map[string]func(){"panic: boom, at ": func() { panic("boom") }, "the function exited its goroutine": runtime.Goexit} {
			t.Run(name+" "+how, func(t *testing.T) {
				t.Parallel()
				b := receive(t, "github", func(b *bed) {
					change(b, end)
					// no other key replaces it
					b.consumer.Key = func(d pawl.Delivery) string { return d.MessageID }
				})
				b.want(b.send("1", `{"n":1}`), http.StatusOK)
				b.want(b.send("2", `{"n":"bad"}`), http.StatusOK)
				b.want(b.send("2", `{"n":"bad"}`), http.StatusOK)
				b.want(b.send("3", `{"n":3}`), http.StatusOK)
				b.wantEffects(2)
				if got := b.letters(); got != `invalid: {"n":"bad"}` {
					t.Errorf("the dead letters are %q", got)
				}
				if n := b.count("select count(*) from pawl_v1.dead_letters as d where d.last_error like '%' || $1 || '%'", name+": "+how); n != 1 {
					t.Errorf("%d dead letters say how", n)
				}
			})
		}
	}
}

// A panic that is not about the delivery is answered 500, so that the sender retries.
func TestReceiver_PanicIsAnswered(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*bed)
		kind   pawl.EventKind
	}{
		"Now":    {func(b *bed) { b.verifier.Now = func() time.Time { panic("boom") } }, pawl.EventWebhookRefused},
		"Answer": {func(b *bed) { b.config.Respond = func(http.ResponseWriter, webhook.Verified) bool { panic("boom") } }, pawl.EventError},
		"Answer exits": {func(b *bed) {
			b.config.Respond = func(http.ResponseWriter, webhook.Verified) bool { runtime.Goexit(); return true }
		}, pawl.EventError},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := receive(t, "stripe", c.change)
			b.want(b.send("", event("evt_1", "charge", "ch_1")), http.StatusInternalServerError)
			b.wantEffects(0)
			if n := b.counters.Count(c.kind); n != 1 {
				t.Errorf("%d events %s, want 1", n, c.kind)
			}
		})
	}
	b := receive(t, "stripe", func(b *bed) {
		b.config.Respond = func(http.ResponseWriter, webhook.Verified) bool { panic(http.ErrAbortHandler) }
	})
	body := event("evt_1", "charge", "ch_1")
	if a, err := post(t.Context(), b.server.URL, b.sign("", body), body); err == nil {
		t.Errorf("a response that was to be aborted is %+v", a)
	}
}

// A broken ledger panics in each method.
type broken struct{ listed bool }

func (b broken) Sent(context.Context, time.Time) iter.Seq2[webhook.Sent, error] {
	return func(yield func(webhook.Sent, error) bool) {
		if !b.listed {
			panic("boom")
		}
		yield(webhook.Sent{Key: "1", ID: "1", At: time.Now().Add(-time.Hour)}, nil)
	}
}

func (broken) Fetch(context.Context, webhook.Sent) (http.Header, []byte, error) { panic("boom") }
func (broken) Resend(context.Context, webhook.Sent) error                       { panic("boom") }

// A panic in a reconciler's function ends the round like an error.
func TestReconciler_Panics(t *testing.T) {
	t.Parallel()
	b := receive(t, "github")
	g := newGitHub(t, b.server.URL)
	for want, r := range map[string]*webhook.Reconciler{
		"Ledger.Sent: panic: boom":   b.reconciler(broken{}),
		"Ledger.Fetch: panic: boom":  b.reconciler(broken{listed: true}),
		"Ledger.Resend: panic: boom": b.reconciler(broken{listed: true}, func(c *webhook.ReconcilerConfig) { c.Resend = true }),
		"ReconcilerConfig.Missing: panic: boom": b.reconciler(broken{listed: true}, func(c *webhook.ReconcilerConfig) {
			c.Missing = func(context.Context, []string) ([]string, error) { panic("boom") }
		}),
		"GitHubConfig.Token: panic: boom": b.reconciler(g.ledger(func(c *webhook.GitHubConfig) {
			c.Token = func(context.Context) (string, error) { panic("boom") }
		})),
	} {
		if _, err := r.Once(t.Context()); err == nil || !strings.Contains(err.Error(), want) || errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", want, err)
		}
	}
}
