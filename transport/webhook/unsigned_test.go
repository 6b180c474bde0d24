package webhook_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/pawl-go/pawl/transport/webhook"
)

// A request whose id is not signed is replayed under new ids. With a key from the signed body it
// takes effect once and keeps one row and one body.
func TestReceiver_AReplayUnderNewUnsignedIDsKeepsNothing(t *testing.T) {
	t.Parallel()
	b := receive(t, "github", func(b *bed) { b.verifier.Key = webhook.KeyBody() })
	body := `{"action":"opened","pad":"` + strings.Repeat("x", 1000) + `"}`
	h, err := b.verifier.Scheme.Sign("id-0", time.Now(), []byte(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := range 10 {
		h.Set("X-GitHub-Delivery", fmt.Sprint("id-", i))
		if a := b.post(h, body); a.status != http.StatusOK {
			t.Errorf("%d: %d", i, a.status)
		}
	}
	for _, table := range []string{"effect", "pawl.inbox", "pawl.delivery"} {
		var n int
		if err := b.pool.QueryRow(t.Context(), "select count(*) from "+table).Scan(&n); err != nil || n != 1 {
			t.Errorf("%d rows in %s, %v", n, table, err)
		}
	}
	b.stop()
}

// With KeyID and the body as semantic key, 100 replays under new unsigned ids keep one row, one
// body and the row of the semantic key.
func TestReceiver_AReplayUnderASemanticKeyKeepsNothing(t *testing.T) {
	t.Parallel()
	b := receive(t, "github", func(b *bed) { b.verifier.Key, b.verifier.SemanticKey = webhook.KeyID(), webhook.KeyBody() })
	body := `{"action":"opened","pad":"` + strings.Repeat("x", 1000) + `"}`
	h, err := b.verifier.Scheme.Sign("id-0", time.Now(), []byte(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		h.Set("X-GitHub-Delivery", fmt.Sprint("id-", i))
		if a := b.post(h, body); a.status != http.StatusOK {
			t.Errorf("%d: %d", i, a.status)
		}
	}
	b.wantEffects(1)
	for what, query := range map[string]string{
		"rows":          "select count(*) from pawl.inbox where key not like 'pawl/%'",
		"semantic keys": "select count(*) from pawl.inbox where key like 'pawl/%'",
		"bodies":        "select count(*) from pawl.delivery",
	} {
		if n := b.count(query); n != 1 {
			t.Errorf("%d %s, want 1", n, what)
		}
	}
	b.stop()
}

// A semantic key that cannot be stored is hashed, not dropped.
func TestVerifier_AnInvalidSemanticKeyIsNotDropped(t *testing.T) {
	t.Parallel()
	s := senderNamed("github")
	keys := map[string]bool{}
	for _, key := range []string{strings.Repeat("k", 300), strings.Repeat("k", 301), "\xff", "pawl/x", ""} {
		v := s.verifier(t, func(c *webhook.Config) { c.SemanticKey = webhook.KeyFunc(func(webhook.Verified) string { return key }) })
		h, err := s.scheme(secrets(s.value)...).Sign("id", time.Now(), []byte(`{}`))
		if err != nil {
			t.Fatal(err)
		}
		m, err := v.Verify(h, []byte(`{}`))
		if err != nil || (m.SemanticKey == "") != (key == "") || len(m.SemanticKey) > 255 || keys[m.SemanticKey] {
			t.Errorf("%.10q became %q, %v", key, m.SemanticKey, err)
		}
		keys[m.SemanticKey] = true
	}
}

// No way of printing a secret, a scheme or a verifier shows a key.
func TestSecrets_AreNotPrinted(t *testing.T) {
	t.Parallel()
	const value = "a-secret-that-nobody-may-see"
	secret := webhook.Secret{Name: "n", Value: value}
	hidden := []string{value, fmt.Sprintf("%x", value), strings.Trim(strings.ReplaceAll(fmt.Sprint([]byte(value)), " ", ", "), "[]"), strings.Trim(fmt.Sprint([]byte(value)), "[]"), "0x61, 0x2d"}
	for _, scheme := range []webhook.Scheme{webhook.GitHub(secret), webhook.Stripe(secret), webhook.Slack(secret), webhook.Shopify(secret)} {
		v, err := webhook.New(webhook.Config{Scheme: scheme})
		if err != nil {
			t.Fatal(err)
		}
		for _, thing := range []any{secret, &secret, []webhook.Secret{secret}, scheme, v, *v, webhook.Config{Scheme: scheme}} {
			for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%x", "%q", "%d"} {
				text := fmt.Sprintf(verb, thing)
				for _, h := range hidden {
					if strings.Contains(text, h) {
						t.Errorf("%s of %T shows the key: %s", verb, thing, text)
					}
				}
			}
		}
	}
}
