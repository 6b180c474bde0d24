package webhook_test

import (
	"net/http"
	"testing"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/transport/webhook"
)

// For every scheme and kind of key, Identify finds in a stored delivery what Verify found in its
// request. The exception is an id in a header that was not kept.
func TestIdentify_AsReceivedNow(t *testing.T) {
	t.Parallel()
	configs := map[string]func(*webhook.Config){
		"id": func(*webhook.Config) {},
		"json": func(c *webhook.Config) {
			c.Key, c.SemanticKey = webhook.KeyJSON("/data/object/id"), webhook.KeyJSON("/type", "/data/object/id")
		},
		"body":    func(c *webhook.Config) { c.Key = webhook.KeyBody() },
		"missing": func(c *webhook.Config) { c.Key = webhook.KeyJSON("/none") },
		"function": func(c *webhook.Config) {
			c.Key = webhook.KeyFunc(func(m webhook.Verified) string { return m.Scheme + m.Secret + m.SentAt.String() })
		},
	}
	each(t, func(t *testing.T, s sender) {
		for name, change := range configs {
			v := s.verifier(t, change)
			want, err := v.Verify(s.sign(t, now, body, s.value), []byte(body))
			if err != nil {
				t.Fatal(err)
			}
			r := newReceiver(t, v, webhook.ReceiverConfig{})
			got := r.Identify(pawl.Delivery{MessageID: want.ID, Payload: want.Body, Attributes: want.UnsignedHeaders, SentAt: want.SentAt, VerifiedBy: want.Scheme + "/" + want.Secret})
			if lost := name == "id" && s.id != "" && got.Key == "" && got.KeyFault != ""; lost {
				continue // the header with the id was not kept
			}
			if got.Key != want.Key || got.KeyFault != want.KeyFault || got.SemanticKey != want.SemanticKey || got.Fingerprint != want.Fingerprint {
				t.Errorf("%s: %+v, want %+v", name, got, want)
			}
		}
	})
}

// Identify finds an id in the body or in a kept header.
func TestIdentify_FindsTheIDThatIsThere(t *testing.T) {
	t.Parallel()
	for name, d := range map[string]pawl.Delivery{
		"stripe": {Payload: []byte(body)},
		"github": {Payload: []byte(body), Attributes: map[string]string{"X-Github-Delivery": "evt_1"}},
	} {
		v := senderNamed(name).verifier(t, func(c *webhook.Config) {
			if name == "github" {
				c.Keep = []string{http.CanonicalHeaderKey("X-GitHub-Delivery")}
			}
		})
		if got := newReceiver(t, v, webhook.ReceiverConfig{}).Identify(d); got.Key != "evt_1" {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
