package webhook_test

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/transport/webhook"
)

func publicOf(t testing.TB, whsk string) string {
	t.Helper()
	seed, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(whsk, "whsk_"))
	if err != nil {
		t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(ed25519.NewKeyFromSeed(seed).Public().(ed25519.PublicKey))
}

// New refuses an invalid configuration.
func TestNew_Refuses(t *testing.T) {
	t.Parallel()
	good := webhook.Stripe(secrets(plain)...)
	hmac := func(c webhook.HMACConfig) webhook.Scheme {
		if c.Header == "" {
			c.Header = "X-Sig"
		}
		return webhook.HMAC(c, secrets(plain)...)
	}
	for part, c := range map[string]webhook.Config{
		"Scheme is missing":               {},
		"Tolerance is -1s":                {Scheme: good, Tolerance: -time.Second},
		"Tolerance is 25h":                {Scheme: good, Tolerance: 25 * time.Hour},
		"MaxBody is -1":                   {Scheme: good, MaxBody: -1},
		"MaxBody is 16777217":             {Scheme: good, MaxBody: 16<<20 + 1},
		"ReadTimeout is 1ms":              {Scheme: good, ReadTimeout: time.Millisecond},
		"KeyJSON needs a pointer":         {Scheme: good, Key: webhook.KeyJSON()},
		`"id" must begin`:                 {Scheme: good, Key: webhook.KeyJSON("id")},
		`"/a~2" has a ~`:                  {Scheme: good, SemanticKey: webhook.KeyJSON("/a~2")},
		"KeyFunc is nil":                  {Scheme: good, Key: webhook.KeyFunc(nil)},
		"header Authorization":            {Scheme: good, Keep: []string{"authorization"}},
		"header Cookie":                   {Scheme: good, Keep: []string{"cookie"}},
		"header Stripe-Signature":         {Scheme: good, Keep: []string{"Stripe-Signature"}},
		`"a b", in Keep, is not the name`: {Scheme: good, Keep: []string{"a b"}},
		"carries the signature":           {Scheme: webhook.HMAC(webhook.HMACConfig{}, secrets(plain)...)},
		`hash "md5"`:                      {Scheme: hmac(webhook.HMACConfig{Hash: "md5"})},
		`encoding "base32"`:               {Scheme: hmac(webhook.HMACConfig{Encoding: "base32"})},
		"characters that are not":         {Scheme: hmac(webhook.HMACConfig{IDHeader: "a:b"})},
		"must end with {body}":            {Scheme: hmac(webhook.HMACConfig{Signed: "{body}."})},
		"each placeholder once":           {Scheme: hmac(webhook.HMACConfig{Signed: "{body}.{body}"})},
		"a header that has no name":       {Scheme: hmac(webhook.HMACConfig{Signed: "{id}.{body}"})},
		"behind {timestamp} in":           {Scheme: hmac(webhook.HMACConfig{Signed: "{timestamp}{body}", TimestampHeader: "T"})},
		"does not end it":                 {Scheme: hmac(webhook.HMACConfig{Signed: "{timestamp}0{body}", TimestampHeader: "T"})},
		"behind {id} in":                  {Scheme: hmac(webhook.HMACConfig{Signed: "{id}{timestamp}.{body}", TimestampHeader: "T", IDHeader: "I"})},
		`two secrets are named "a"`:       {Scheme: webhook.Stripe(webhook.Secret{Name: "a", Value: plain}, webhook.Secret{Name: "a", Value: otherPlain})},
		"6 secrets were given":            {Scheme: webhook.Stripe(secrets(plain, plain, plain, plain, plain, plain)...)},
		"unknown prefix":                  {Scheme: webhook.StandardWebhooks(secrets("whxx_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")...)},
		"with base64 behind it":           {Scheme: webhook.StandardWebhooks(secrets("whsec_!!!!")...)},
		"requires 24 to 64":               {Scheme: webhook.StandardWebhooks(secrets("whsec_" + base64.StdEncoding.EncodeToString(make([]byte, 65)))...)},
		"public key that is not":          {Scheme: webhook.StandardWebhooks(secrets("whsk_" + base64.StdEncoding.EncodeToString(make([]byte, 64)))...)},
		"32 or 64":                        {Scheme: webhook.StandardWebhooks(secrets("whsk_" + base64.StdEncoding.EncodeToString(make([]byte, 33)))...)},
	} {
		_, err := webhook.New(c)
		wantInvalid(t, err, part)
		for _, never := range []string{plain, otherPlain} {
			if err != nil && strings.Contains(err.Error(), never) {
				t.Errorf("%q holds a secret", err)
			}
		}
	}
}

// No way of printing shows a secret.
func TestSecret_IsNotPrinted(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s sender) {
		secret := webhook.Secret{Name: "now", Value: s.value}
		config := webhook.Config{Scheme: s.scheme(secret)}
		asJSON, err := json.Marshal(secret)
		if err != nil {
			t.Fatal(err)
		}
		var logged strings.Builder
		slog.New(slog.NewTextHandler(&logged, nil)).Info("x", "secret", secret, "scheme", config.Scheme, "config", config)
		for _, text := range []string{string(asJSON), logged.String(), fmt.Sprintf("%v %+v %#v %s", secret, secret, secret, secret), fmt.Sprintf("%v %+v", config, config)} {
			if strings.Contains(text, s.value) || strings.Contains(text, strings.Trim(fmt.Sprint([]byte(s.value)), "[]")) {
				t.Error(text)
			}
		}
	})
}

// Keys come from the scheme, the body, a hash or a function. A key that does not fit is empty.
func TestKeys(t *testing.T) {
	t.Parallel()
	s := senders[3]
	for name, c := range map[string]struct {
		from        webhook.KeyFrom
		body        string
		want, fault string
	}{
		"id":                {nil, body, "evt_1", ""},
		"no id":             {nil, `{"type":"x"}`, "", "gave no id"},
		"id is no string":   {nil, `{"id":["x"]}`, "", "gave no id"},
		"id too long":       {nil, `{"id":"` + strings.Repeat("x", 256) + `"}`, "", "256 octets"},
		"control character": {nil, `{"id":"a\u0000b"}`, "", "control character"},
		"path":              {webhook.KeyJSON("/data/object/id"), body, "in_7", ""},
		"number":            {webhook.KeyJSON("/pending_webhooks"), body, "2", ""},
		"element, escapes":  {webhook.KeyJSON("/a~1b/1/~0"), `{"a/b":[0,{"~":"x"}]}`, "x", ""},
		"no such element":   {webhook.KeyJSON("/a/01"), `{"a":[0,1]}`, "", "at /a/01"},
		"two paths":         {webhook.KeyJSON("/type", "/data/object/id"), body, "12:invoice.paid4:in_7", ""},
		"path leads off":    {webhook.KeyJSON("/data/object/name"), body, "", "at /data/object/name"},
		"no JSON":           {webhook.KeyJSON("/id"), "id=1", "", "not one JSON document"},
		"two documents":     {webhook.KeyJSON("/id"), `{"id":"a"}{"id":"b"}`, "", "not one JSON document"},
		"hash":              {webhook.KeyBody(), "x", "sha256:2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881", ""},
		"function":          {webhook.KeyFunc(func(m webhook.Verified) string { return m.ID + "!" }), body, "evt_1!", ""},
		"function, nothing": {webhook.KeyFunc(func(webhook.Verified) string { return "" }), body, "", "returned no key"},
	} {
		v := s.verifier(t, func(c2 *webhook.Config) { c2.Key = c.from })
		m, err := v.Verify(s.sign(t, now, c.body), []byte(c.body))
		if err != nil || m.Key != c.want || (m.KeyFault == "") != (c.fault == "") || !strings.Contains(m.KeyFault, c.fault) {
			t.Errorf("%s: %q, %q, %v", name, m.Key, m.KeyFault, err)
		}
	}
	// Two topics of one Shopify action are two deliveries. So are two ids on one topic and event.
	shopify := senders[7]
	seen := map[string]bool{}
	for _, topic := range []string{"orders/create", "inventory_levels/update"} {
		h := shopify.sign(t, now, body)
		h.Set("X-Shopify-Topic", topic)
		m, err := shopify.verifier(t).Verify(h, []byte(body))
		if err != nil || m.ID != shopify.id || m.UnsignedHeaders["X-Shopify-Topic"] != topic {
			t.Errorf("%+v, %v", m, err)
		}
		seen[m.Key] = true
	}
	for _, id := range []string{"delivery-1", "delivery-2", "delivery-2"} {
		h := shopify.sign(t, now, body)
		h.Set("X-Shopify-Webhook-Id", id)
		h.Set("X-Shopify-Event-Id", "event-1")
		m, err := shopify.verifier(t).Verify(h, []byte(body))
		if err != nil || m.ID != id || m.UnsignedHeaders["X-Shopify-Event-Id"] != "event-1" {
			t.Errorf("%+v, %v", m, err)
		}
		seen[m.Key] = true
	}
	if len(seen) != 4 {
		t.Errorf("keys %v", seen)
	}
}

// Members that a sender changes on a retry do not count; everything else does.
func TestFingerprints(t *testing.T) {
	t.Parallel()
	same := func(f webhook.FingerprintFrom, a, b string) bool { return f([]byte(a)) == f([]byte(b)) }
	for name, c := range map[string]struct {
		from webhook.FingerprintFrom
		a, b string
		same bool
	}{
		"left out":             {webhook.IgnoreFields("/n"), `{"id":"a","n":2}`, `{"n":1, "id":"a"}`, true},
		"left out, absent":     {webhook.IgnoreFields("/n"), `{"id":"a","n":2}`, `{"id":"a"}`, true},
		"nested":               {webhook.IgnoreFields("/a/0/n", "/x/y"), `{"a":[{"n":1}]}`, `{"a":[{"n":2}]}`, true},
		"element stays":        {webhook.IgnoreFields("/a/0"), `{"a":[1]}`, `{"a":[2]}`, false},
		"elsewhere":            {webhook.IgnoreFields("/n"), `{"id":"a","o":{"n":2}}`, `{"id":"a","o":{"n":1}}`, false},
		"other member":         {webhook.IgnoreFields("/n"), `{"id":"a","n":2}`, `{"id":"b","n":2}`, false},
		"hidden by a repeat":   {webhook.IgnoreFields("/n"), `{"id":"a","id":"b"}`, `{"id":"c","id":"b"}`, false},
		"half a surrogate":     {webhook.IgnoreFields("/n"), `{"id":"\ud800"}`, `{"id":"\ud801"}`, false},
		"beyond a double":      {webhook.IgnoreFields("/n"), `{"id":9007199254740993}`, `{"id":9007199254740992}`, false},
		"no JSON":              {webhook.IgnoreFields("/n"), `n=1`, `n=2`, false},
		"only":                 {webhook.OnlyFields("/id"), `{"id":"a","x":1}`, `{"id":"a","y":2}`, true},
		"only, differs":        {webhook.OnlyFields("/id"), `{"id":"a"}`, `{"id":"b"}`, false},
		"only, null or absent": {webhook.OnlyFields("/id"), `{"id":null}`, `{}`, false},
		"only the key":         {webhook.IgnoreBody(), `a`, `b`, true},
	} {
		if got := same(c.from, c.a, c.b); got != c.same {
			t.Errorf("%s: same is %v", name, got)
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("a pointer that is none was taken")
		}
	}()
	webhook.IgnoreFields("n")
}

// The presets are on by default (trap T34).
func TestFingerprints_OfSenders(t *testing.T) {
	t.Parallel()
	print := func(s sender, body string) pawl.Fingerprint {
		m, err := s.verifier(t).Verify(s.sign(t, now, body), []byte(body))
		if err != nil {
			t.Fatal(err)
		}
		return m.Fingerprint
	}
	standard, stripe, mux, github := senders[0], senders[3], senders[4], senders[5]
	if print(stripe, body) != print(stripe, strings.Replace(body, `webhooks":2`, `webhooks":1`, 1)) {
		t.Error("Stripe counts pending_webhooks down: that is no other event")
	}
	if print(mux, `{"id":"e","attempts":[]}`) != print(mux, `{"id":"e","attempts":[{"status":500}]}`) {
		t.Error("Mux lists its attempts: that is no other event")
	}
	if print(stripe, body) == print(stripe, strings.Replace(body, "1.10", "9.10", 1)) || print(standard, body) != pawl.FingerprintOf([]byte(body)) {
		t.Error("the rest must count, and without a preset the raw body")
	}
	if print(github, body) != print(github, strings.ReplaceAll(body, ",", ",\n  ")) || print(github, body) == print(github, strings.Replace(body, "1.10", "9.10", 1)) {
		t.Error("GitHub's API shows payloads encoded anew: spaces do not count there, values do")
	}
	for _, s := range webhook.Senders() {
		if s.Name != "sns" {
			continue
		}
		f := webhook.IgnoreFields(s.Volatile...)
		first := `{"MessageId":"m","Message":"hello","Timestamp":"2026-01-01T00:00:00Z","Signature":"a","SigningCertURL":"b","UnsubscribeURL":"c","SignatureVersion":"1"}`
		if f([]byte(first)) != f([]byte(`{"MessageId":"m","Message":"hello","Timestamp":"2026-01-01T00:00:09Z","Signature":"z"}`)) || f([]byte(first)) == f([]byte(strings.Replace(first, "hello", "bye", 1))) {
			t.Error("the envelope of SNS")
		}
	}
}

// Keys are remembered for longer than the sender retries or resends. Each scheme has a Sender.
func TestSenders(t *testing.T) {
	t.Parallel()
	for _, s := range webhook.Senders() {
		if s.Retention <= s.Retries || s.Retention <= s.Resends || s.Retention < 14*24*time.Hour || !strings.HasPrefix(s.Page, "https://") {
			t.Errorf("%+v", s)
		}
		if _, err := time.Parse(time.DateOnly, s.Read); s.Read != "" && err != nil {
			t.Error(err)
		}
		if len(s.Volatile) > 0 {
			webhook.IgnoreFields(s.Volatile...)
			s.Volatile[0] = "mine" // Senders returns copies
		}
	}
	each(t, func(t *testing.T, s sender) {
		scheme := s.scheme(secrets(s.value)...)
		known := scheme.Sender()
		if known.Name != scheme.Name() || (known.Page == "") != (s.name == "hmac") || known.Retention < 14*24*time.Hour {
			t.Errorf("%+v", known)
		}
	})
}

// An id for which the scheme has no header must be the one in the body.
func TestSign_IDInTheBody(t *testing.T) {
	t.Parallel()
	for _, s := range senders {
		scheme := s.scheme(secrets(s.value)...)
		if _, err := scheme.Sign(s.wantID, now, []byte(body)); err != nil {
			t.Errorf("%s: %v", s.name, err)
		}
		if s.id == "" {
			_, err := scheme.Sign("another", now, []byte(body))
			wantInvalid(t, err, "in the body")
		} else {
			_, err := scheme.Sign("two words", now, []byte(body))
			wantInvalid(t, err, "octet 0x20 at 3")
		}
	}
	_, err := webhook.HMAC(webhook.HMACConfig{Header: "X-Sig"}, secrets(plain)...).Sign("id", now, []byte(body))
	wantInvalid(t, err, "no header for an id")
}
