package webhook_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/transport/webhook"
)

// A signed request verifies, and Verified has its data.
func TestVerify_Genuine(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s sender) {
		h := s.sign(t, now, body)
		h.Set("Content-Type", "application/json")
		h.Set("Authorization", "Bearer x")
		m, err := s.verifier(t).Verify(h, []byte(body))
		if err != nil {
			t.Fatal(err)
		}
		if string(m.Body) != body || m.ID != s.wantID || m.Secret != "1" || m.Key == "" || m.KeyFault != "" || m.Fingerprint.IsZero() {
			t.Errorf("%+v", m)
		}
		if want := s.timed; m.SentAt.Equal(now) != want || m.SentAt.IsZero() == want {
			t.Errorf("sent at %s", m.SentAt)
		}
		if unsigned := s.name == "github" || s.name == "shopify"; m.IDSigned == unsigned {
			t.Errorf("IDSigned is %v", m.IDSigned)
		}
		if m.UnsignedHeaders["Content-Type"] != "application/json" || m.UnsignedHeaders["Authorization"] != "" || m.UnsignedHeaders[s.header] != "" {
			t.Errorf("kept: %v", m.UnsignedHeaders)
		}
	})
}

// During a rotation both secrets verify, and Secret names the one that matched.
func TestVerify_Rotation(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s sender) {
		both := s.verifier(t, func(c *webhook.Config) {
			c.Scheme = s.scheme(webhook.Secret{Name: "new", Value: s.other}, webhook.Secret{Name: "old", Value: s.value})
		})
		for name, value := range map[string]string{"old": s.value, "new": s.other} {
			if m, err := both.Verify(s.sign(t, now, body, value), []byte(body)); err != nil || m.Secret != name {
				t.Errorf("%s: %q, %v", name, m.Secret, err)
			}
		}
		only := s.verifier(t, func(c *webhook.Config) { c.Scheme = s.scheme(secrets(s.other)...) })
		m, err := only.Verify(s.sign(t, now, body), []byte(body))
		wantRefused(t, s, m, err, webhook.ReasonSignatureMismatch)
		// With two signatures, either secret verifies.
		if h := s.sign(t, now, body, s.value, s.other); strings.ContainsAny(h.Get(s.header), " ,") {
			if _, err := only.Verify(h, []byte(body)); err != nil {
				t.Error(err)
			}
		}
	})
}

// A change of any octet of the body is detected.
func TestVerify_Forged(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s sender) {
		v, h := s.verifier(t), s.sign(t, now, body)
		for i := range body {
			forged := []byte(body)
			forged[i] ^= 1
			m, err := v.Verify(h, forged)
			wantRefused(t, s, m, err, webhook.ReasonSignatureMismatch)
		}
	})
}

func TestVerify_WrongSecret(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s sender) {
		m, err := s.verifier(t).Verify(s.sign(t, now, body, s.other), []byte(body))
		wantRefused(t, s, m, err, webhook.ReasonSignatureMismatch)
	})
}

// A signature does not verify another body, even within the tolerance.
func TestVerify_ReplayedWithAnotherBody(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s sender) {
		h := s.sign(t, now, body)
		m, err := s.verifier(t).Verify(h, []byte(strings.Replace(body, "1.10", "9.10", 1)))
		wantRefused(t, s, m, err, webhook.ReasonSignatureMismatch)
	})
}

func TestVerify_Truncated(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s sender) {
		v, h := s.verifier(t), s.sign(t, now, body)
		for _, n := range []int{1, len(body) / 2, len(body) - 1} {
			m, err := v.Verify(h, []byte(body[:n]))
			wantRefused(t, s, m, err, webhook.ReasonSignatureMismatch)
		}
		m, err := v.Verify(h, nil)
		wantRefused(t, s, m, err, webhook.ReasonBodyEmpty)
	})
}

// A body that middleware parses and encodes again is refused: white space, numbers or order differ.
func TestT51_ReserialisedBodyIsRefused(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s sender) {
		v, h := s.verifier(t), s.sign(t, now, body)
		var document any
		if err := json.Unmarshal([]byte(body), &document); err != nil {
			t.Fatal(err)
		}
		again, err := json.Marshal(document)
		if err != nil {
			t.Fatal(err)
		}
		var spaced bytes.Buffer
		if err := json.Indent(&spaced, []byte(body), "", " "); err != nil {
			t.Fatal(err)
		}
		for what, changed := range map[string][]byte{"decoded and encoded": again, "indented": spaced.Bytes(), "newline": []byte(body + "\n")} {
			m, err := v.Verify(h, changed)
			if wantRefused(t, s, m, err, webhook.ReasonSignatureMismatch); t.Failed() {
				t.Fatal(what)
			}
		}
	})
}

func TestVerify_Stale(t *testing.T) {
	t.Parallel()
	eachTimed(t, true, func(t *testing.T, s sender) {
		v := s.verifier(t)
		if _, err := v.Verify(s.sign(t, now.Add(-300*time.Second), body), []byte(body)); err != nil {
			t.Errorf("at the edge: %v", err)
		}
		for _, late := range []time.Duration{301 * time.Second, time.Hour, 24 * 365 * 40 * time.Hour} {
			m, err := v.Verify(s.sign(t, now.Add(-late), body), []byte(body))
			wantRefused(t, s, m, err, webhook.ReasonTimestampStale)
		}
	})
}

// A timestamp in the future is refused. stripe-go accepts one, since it checks only the age.
func TestT48_FutureTimestampIsRefused(t *testing.T) {
	t.Parallel()
	eachTimed(t, true, func(t *testing.T, s sender) {
		v := s.verifier(t)
		if _, err := v.Verify(s.sign(t, now.Add(300*time.Second), body), []byte(body)); err != nil {
			t.Errorf("at the edge: %v", err)
		}
		for _, early := range []time.Duration{301 * time.Second, time.Hour, 24 * 365 * 200 * time.Hour} {
			m, err := v.Verify(s.sign(t, now.Add(early), body), []byte(body))
			wantRefused(t, s, m, err, webhook.ReasonTimestampFuture)
		}
		// Further away than a Duration reaches.
		m, err := v.Verify(s.sign(t, time.Unix(999_999_999_999, 0), body), []byte(body))
		if wantRefused(t, s, m, err, webhook.ReasonTimestampFuture); err != nil && strings.Contains(err.Error(), ": -") {
			t.Error(err)
		}
	})
}

// A replaced timestamp on a signed request is refused.
func TestT49_TimestampIsSigned(t *testing.T) {
	t.Parallel()
	eachTimed(t, true, func(t *testing.T, s sender) {
		h := s.sign(t, now.Add(-time.Hour), body)
		old, fresh := "1759996400", "1760000000"
		for name := range h {
			h.Set(name, strings.Replace(h.Get(name), old, fresh, 1))
		}
		m, err := s.verifier(t).Verify(h, []byte(body))
		wantRefused(t, s, m, err, webhook.ReasonSignatureMismatch)
	})
	_, err := webhook.New(webhook.Config{Scheme: webhook.HMAC(webhook.HMACConfig{Header: "X-Sig", TimestampHeader: "X-Time", Signed: "{body}"}, secrets(plain)...)})
	wantInvalid(t, err, "does not sign it")
}

// GitHub and Shopify sign neither timestamp nor id. A request of last year verifies, also under
// another id. IDSigned is false, and the second key, from the signed body, is equal.
func TestT49_NoTimestampIsSaid(t *testing.T) {
	t.Parallel()
	eachTimed(t, false, func(t *testing.T, s sender) {
		v := s.verifier(t, func(c *webhook.Config) { c.SemanticKey = webhook.KeyBody() })
		h := s.sign(t, now.Add(-24*365*time.Hour), body)
		first, err := v.Verify(h, []byte(body))
		if err != nil {
			t.Fatal(err)
		}
		for name := range h {
			if name != s.header {
				h.Set(name, "an-id-of-the-attacker")
			}
		}
		again, err := v.Verify(h, []byte(body))
		if err != nil {
			t.Fatal(err)
		}
		if first.IDSigned || !first.SentAt.IsZero() || first.Key == again.Key || first.SemanticKey != again.SemanticKey || first.SemanticKey == "" {
			t.Errorf("%+v\n%+v", first, again)
		}
	})
}

// Each header of a scheme must occur once and not be empty.
func TestVerify_Headers(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s sender) {
		v := s.verifier(t)
		for name := range s.sign(t, now, body) {
			optional := s.name == "github" && name == "X-Github-Delivery" || s.name == "shopify" && name == "X-Shopify-Webhook-Id"
			change := func(f func(h http.Header)) (webhook.Verified, error) {
				h := s.sign(t, now, body)
				f(h)
				return v.Verify(h, []byte(body))
			}
			m, err := change(func(h http.Header) { h.Del(name) })
			if !optional {
				wantRefused(t, s, m, err, webhook.ReasonHeaderMissing)
			} else if err != nil || m.Key != "" || m.KeyFault == "" {
				t.Errorf("without %s: %+v, %v", name, m, err)
			}
			m, err = change(func(h http.Header) { h.Set(name, "") })
			wantRefused(t, s, m, err, webhook.ReasonHeaderMissing)
			m, err = change(func(h http.Header) { h.Add(name, h.Get(name)) })
			wantRefused(t, s, m, err, webhook.ReasonHeaderRepeated)
			m, err = change(func(h http.Header) { h.Set(name, h.Get(name)+strings.Repeat("x", 4096)) })
			wantRefused(t, s, m, err, webhook.ReasonHeaderTooLarge)
			m, err = change(func(h http.Header) { h.Set(name, " "+h.Get(name)) })
			wantRefused(t, s, m, err, webhook.ReasonSignatureMalformed, webhook.ReasonSignatureMismatch, webhook.ReasonTimestampMalformed, webhook.ReasonIDMalformed)
		}
		m, err := v.Verify(http.Header{}, []byte(body))
		wantRefused(t, s, m, err, webhook.ReasonHeaderMissing)
	})
}

// A signature has one spelling, so that equal signatures are equal texts.
func TestVerify_SignatureSpellings(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s sender) {
		v := s.verifier(t)
		for what, change := range map[string]func(string) string{
			"upper case":      strings.ToUpper,
			"trailing space":  func(x string) string { return x + " " },
			"trailing tab":    func(x string) string { return x + "\t" },
			"newline":         func(x string) string { return x[:len(x)-3] + "\n" + x[len(x)-3:] },
			"cut":             func(x string) string { return x[:len(x)-1] },
			"longer":          func(x string) string { return x + "0" },
			"not of this age": func(x string) string { return strings.Repeat("z", len(x)) },
			"prefix alone":    func(x string) string { return x[:strings.IndexAny(x, "=,1234567890")+1] },
			"quoted":          func(x string) string { return `"` + x + `"` },
		} {
			h := s.sign(t, now, body)
			h.Set(s.header, change(h.Get(s.header)))
			m, err := v.Verify(h, []byte(body))
			if s.timed && s.time == "" && what == "upper case" { // it becomes T= and V1=
				wantRefused(t, s, m, err, webhook.ReasonTimestampMalformed)
				h = s.sign(t, now, body)
				front, digits, _ := strings.Cut(h.Get(s.header), "v1=")
				h.Set(s.header, front+"v1="+strings.ToUpper(digits))
				m, err = v.Verify(h, []byte(body))
			}
			if wantRefused(t, s, m, err, webhook.ReasonSignatureMalformed, webhook.ReasonSignatureMismatch, webhook.ReasonTimestampMalformed); t.Failed() {
				t.Fatal(what)
			}
		}
	})
	// The prefix of a signature is required.
	for prefix, s := range map[string]sender{"sha256=": senders[5], "v0=": senders[6]} {
		h := s.sign(t, now, body)
		for _, changed := range []string{strings.TrimPrefix(h.Get(s.header), prefix), strings.Replace(h.Get(s.header), "=", "", 1), "sha1=" + strings.TrimPrefix(h.Get(s.header), prefix)} {
			h.Set(s.header, changed)
			m, err := s.verifier(t).Verify(h, []byte(body))
			wantRefused(t, s, m, err, webhook.ReasonSignatureMalformed)
		}
	}
	// Base64 without padding decodes to the same octets but is another text.
	s := senders[1]
	h := s.sign(t, now, body)
	h.Set(s.header, strings.TrimRight(h.Get(s.header), "="))
	m, err := s.verifier(t).Verify(h, []byte(body))
	wantRefused(t, s, m, err, webhook.ReasonSignatureMismatch)
}

// A timestamp is plain seconds.
func TestVerify_TimestampSpellings(t *testing.T) {
	t.Parallel()
	eachTimed(t, true, func(t *testing.T, s sender) {
		v := s.verifier(t)
		for _, text := range []string{"1e9", "-1760000000", "+1760000000", "01760000000", "1760000000.0", "1760000000 ", "17600000000000000000", "0", "x", "１"} {
			h := s.sign(t, now, body)
			for name := range h {
				h.Set(name, strings.Replace(h.Get(name), "1760000000", text, 1))
			}
			m, err := v.Verify(h, []byte(body))
			if wantRefused(t, s, m, err, webhook.ReasonTimestampMalformed); t.Failed() {
				t.Fatal(text)
			}
		}
	})
}

// At most ten signatures are checked. More are refused before any hash is computed.
func TestVerify_SignatureFlood(t *testing.T) {
	t.Parallel()
	for _, s := range senders {
		between := map[string]string{"standard": " ", "standard v1a": " ", "svix": " ", "stripe": ",", "mux": ","}[s.name]
		if between == "" {
			continue // these have one signature
		}
		v, h := s.verifier(t), s.sign(t, now, body)
		genuine := h.Get(s.header)
		forged := map[string]string{" ": "v1,0 ", ",": "v1=0,"}[between]
		h.Set(s.header, strings.Repeat(forged, 10)+genuine)
		m, err := v.Verify(h, []byte(body))
		wantRefused(t, s, m, err, webhook.ReasonTooManySignatures)
		h.Set(s.header, strings.Repeat(forged, 8)+genuine)
		if _, err := v.Verify(h, []byte(body)); err != nil {
			t.Errorf("%s: %v", s.name, err)
		}
		h.Set(s.header, strings.Repeat(forged, 4000)+genuine)
		m, err = v.Verify(h, []byte(body))
		wantRefused(t, s, m, err, webhook.ReasonHeaderTooLarge)
	}
	stripe := senders[3]
	h := stripe.sign(t, now, body)
	h.Set(stripe.header, "t=1,"+h.Get(stripe.header))
	m, err := stripe.verifier(t).Verify(h, []byte(body))
	wantRefused(t, stripe, m, err, webhook.ReasonTimestampMalformed)
}

// A separator may not occur in the signed parts: two requests could have the same signature.
func TestVerify_PartsDoNotRunTogether(t *testing.T) {
	t.Parallel()
	for _, s := range []sender{senders[0], senders[8]} {
		never := map[string]string{"standard": "a.b", "hmac": "a|b"}[s.name]
		if _, err := s.scheme(secrets(s.value)...).Sign(never, now, []byte(body)); err == nil {
			t.Errorf("%s signed the id %q", s.name, never)
		}
		h := s.sign(t, now, body)
		for name := range h {
			if h.Get(name) == s.id {
				h.Set(name, never)
			}
		}
		m, err := s.verifier(t).Verify(h, []byte(body))
		wantRefused(t, s, m, err, webhook.ReasonIDMalformed)
	}
}

func TestVerify_Encoded(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s sender) {
		for encoding, refused := range map[string]bool{"gzip": true, "br": true, "identity, gzip": true, "identity": false, "": false} {
			h := s.sign(t, now, body)
			h.Set("Content-Encoding", encoding)
			m, err := s.verifier(t).Verify(h, []byte(body))
			if refused {
				wantRefused(t, s, m, err, webhook.ReasonContentEncoding)
			} else if err != nil {
				t.Errorf("%q: %v", encoding, err)
			}
		}
	})
}

func TestVerify_Oversized(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s sender) {
		v := s.verifier(t, func(c *webhook.Config) { c.MaxBody = int64(len(body)) })
		if _, err := v.Verify(s.sign(t, now, body), []byte(body)); err != nil {
			t.Error(err)
		}
		m, err := v.Verify(s.sign(t, now, body+" "), []byte(body+" "))
		wantRefused(t, s, m, err, webhook.ReasonBodyTooLarge)
	})
}

// An empty secret would verify forged signatures, so each scheme refuses it.
func TestT47_EmptySecretIsRefused(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s sender) {
		for what, value := range map[string]string{
			"empty": "", "blank": "   ", "too short": "fifteen octets!", "newline of a file": s.value + "\n", "prefix alone": "whsec_", "public key of nothing": "whpk_",
			"short public key": "whpk_AAAA", "23 octets": "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTI=",
		} {
			if what == "23 octets" && !strings.Contains(s.header, "Webhook") && s.name != "svix" {
				continue // only a rule of Standard Webhooks
			}
			c := webhook.Config{Scheme: s.scheme(secrets(value)...)}
			if _, err := webhook.New(c); err == nil {
				t.Errorf("%s: a verifier was made", what)
			} else {
				wantInvalid(t, err, "secret")
			}
			if _, err := c.Scheme.Sign(s.id, now, []byte(body)); err == nil {
				t.Errorf("%s: it signs", what)
			}
		}
		_, err := webhook.New(webhook.Config{Scheme: s.scheme()})
		wantInvalid(t, err, "0 secrets")
		_, err = webhook.New(webhook.Config{Scheme: s.scheme(secrets(s.value, "")...)})
		wantInvalid(t, err, `"2" is empty`)
	})
}

// An HMAC made with the public key is refused: a key verifies only signatures of its own kind.
func TestT47_APublicKeyIsNoHMACSecret(t *testing.T) {
	t.Parallel()
	public := publicOf(t, whsk)
	v := verifier(t, webhook.Config{Scheme: webhook.StandardWebhooks(secrets("whpk_" + public)...), Now: func() time.Time { return now }})
	raw, err := base64.StdEncoding.DecodeString(public)
	if err != nil {
		t.Fatal(err)
	}
	for what, secret := range map[string]string{"nothing": "", "the public key": string(raw), "its text": public} {
		h := senders[1].sign(t, now, body)
		h.Set("Webhook-Signature", "v1,"+base64.StdEncoding.EncodeToString(mac256(secret, "msg_1.1760000000."+body)))
		if m, err := v.Verify(h, []byte(body)); webhook.ReasonOf(err) != webhook.ReasonSignatureMismatch {
			t.Errorf("an HMAC of %s: %+v, %v", what, m, err)
		}
	}
	// The reverse: a v1a signature and an HMAC secret.
	m, err := senders[0].verifier(t).Verify(senders[1].sign(t, now, body), []byte(body))
	wantRefused(t, senders[0], m, err, webhook.ReasonSignatureMismatch)
}

// Ids that a proxy has joined from two headers are refused.
func TestVerify_JoinedIDs(t *testing.T) {
	t.Parallel()
	for _, s := range senders {
		if s.id == "" {
			continue // in the body
		}
		for _, joined := range []string{s.id + "," + s.id, s.id + ", x", "a\tb", "é", strings.Repeat("x", 256)} {
			h := s.sign(t, now, body)
			for name := range h {
				if h.Get(name) == s.id {
					h.Set(name, joined)
				}
			}
			m, err := s.verifier(t).Verify(h, []byte(body))
			wantRefused(t, s, m, err, webhook.ReasonIDMalformed)
		}
	}
}

// Stripe may send one change under two ids. The second key is equal for both.
func TestT56_SemanticKeyOfTwoEvents(t *testing.T) {
	t.Parallel()
	s := senders[3]
	v := s.verifier(t, func(c *webhook.Config) { c.SemanticKey = webhook.KeyJSON("/type", "/data/object/id") })
	keys := func(body string) (string, string) {
		m, err := v.Verify(s.sign(t, now, body), []byte(body))
		if err != nil {
			t.Fatal(err)
		}
		return m.Key, m.SemanticKey
	}
	key1, semantic1 := keys(body)
	key2, semantic2 := keys(strings.Replace(body, "evt_1", "evt_2", 1))
	if key1 == key2 || semantic1 != semantic2 || semantic1 != pawl.Key("invoice.paid", "in_7") {
		t.Errorf("%q %q, %q %q", key1, semantic1, key2, semantic2)
	}
	if _, other := keys(strings.Replace(body, "in_7", "in_8", 1)); other == semantic1 {
		t.Error("two invoices, one key")
	}
	if _, none := keys(`{"id":"evt_3","type":"ping"}`); none != "" {
		t.Errorf("a key %q of a part that is not there", none)
	}
}

// Shopify's Events name their headers without X-. They verify by the same scheme, under their own
// id and topic. Forged, unsigned and repeated signatures are refused as with X-.
func TestVerify_ShopifyEvents(t *testing.T) {
	t.Parallel()
	s := senders[7]
	v := s.verifier(t)
	events := func(change func(h http.Header)) (webhook.Verified, error) {
		h := http.Header{}
		h.Set("shopify-hmac-sha256", base64.StdEncoding.EncodeToString(mac256(plain, body)))
		h.Set("shopify-webhook-id", "delivery-1")
		h.Set("shopify-topic", "Product")
		h.Set("shopify-shop-domain", "a.myshopify.com")
		h.Set("shopify-action", "update")
		change(h)
		return v.Verify(h, []byte(body))
	}
	m, err := events(func(http.Header) {})
	if err != nil || m.ID != "delivery-1" || m.Key != pawl.Key("Product", "delivery-1") || m.IDSigned ||
		m.UnsignedHeaders["Shopify-Shop-Domain"] != "a.myshopify.com" || m.UnsignedHeaders["Shopify-Action"] != "update" || m.UnsignedHeaders["Shopify-Hmac-Sha256"] != "" {
		t.Errorf("%+v, %v", m, err)
	}
	for reason, change := range map[webhook.Reason]func(h http.Header){
		webhook.ReasonSignatureMismatch: func(h http.Header) {
			h.Set("shopify-hmac-sha256", base64.StdEncoding.EncodeToString(mac256(otherPlain, body)))
		},
		webhook.ReasonHeaderMissing:  func(h http.Header) { h.Del("shopify-hmac-sha256") },
		webhook.ReasonHeaderRepeated: func(h http.Header) { h.Add("shopify-hmac-sha256", h.Get("shopify-hmac-sha256")) },
	} {
		m, err := events(change)
		wantRefused(t, s, m, err, reason)
	}
	// With both sets of headers the first counts, so that a request has one reading.
	m, err = events(func(h http.Header) {
		h.Set("X-Shopify-Hmac-Sha256", base64.StdEncoding.EncodeToString(mac256(otherPlain, body)))
	})
	wantRefused(t, s, m, err, webhook.ReasonSignatureMismatch)
	for _, name := range []string{"X-Shopify-Hmac-Sha256", "Shopify-Hmac-Sha256"} {
		_, err := webhook.New(webhook.Config{Scheme: s.scheme(secrets(plain)...), Keep: []string{name}})
		wantInvalid(t, err, "must not be stored")
	}
}
