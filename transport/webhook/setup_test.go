package webhook_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/transport/webhook"
)

// now is the time of every test's clock.
var now = time.Unix(1_760_000_000, 0)

// A sender is a scheme with the data for its tests.
type sender struct {
	name   string
	scheme func(...webhook.Secret) webhook.Scheme
	value  string // a secret
	other  string // another one
	id     string // given to Sign; "" if the body has it
	wantID string
	header string // carries the signature
	time   string // carries the timestamp, if it has its own header
	timed  bool   // signs a timestamp
	hex    bool   // the signature is hexadecimal
}

const body = `{"id":"evt_1","event_id":"Ev1","type":"invoice.paid","data":{"object":{"id":"in_7","amount":1.10}},"pending_webhooks":2}`

const (
	plain      = "whsec_q3Rt5vXy8Zb2Nd4Gh6Jk"
	otherPlain = "whsec_Zz9Yy8Xx7Ww6Vv5Uu4Tt"
	whsec      = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	otherWhsec = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
	whsk       = "whsk_VEVTVFNJR05JTkdLRVlET05PVFVTRVRISVNGT1JBTlk="
	otherWhsk  = "whsk_V0VCSE9PS0FTWU1NRVRSSUNURVNUUFJJVkFURUtFWTE="
)

func custom(secrets ...webhook.Secret) webhook.Scheme {
	return webhook.HMAC(webhook.HMACConfig{Name: "acme", Header: "X-Acme-Signature", Hash: webhook.SHA512, TimestampHeader: "X-Acme-Time",
		IDHeader: "X-Acme-Id", Signed: "{id}|{timestamp}|{body}"}, secrets...)
}

var senders = []sender{
	{name: "standard", scheme: webhook.StandardWebhooks, value: whsec, other: otherWhsec, id: "msg_1", wantID: "msg_1", header: "Webhook-Signature", time: "Webhook-Timestamp", timed: true},
	{name: "standard v1a", scheme: webhook.StandardWebhooks, value: whsk, other: otherWhsk, id: "msg_1", wantID: "msg_1", header: "Webhook-Signature", time: "Webhook-Timestamp", timed: true},
	{name: "svix", scheme: webhook.Svix, value: whsec, other: otherWhsec, id: "msg_1", wantID: "msg_1", header: "Svix-Signature", time: "Svix-Timestamp", timed: true},
	{name: "stripe", scheme: webhook.Stripe, value: plain, other: otherPlain, wantID: "evt_1", header: "Stripe-Signature", timed: true, hex: true},
	{name: "mux", scheme: webhook.Mux, value: plain, other: otherPlain, wantID: "evt_1", header: "Mux-Signature", timed: true, hex: true},
	{name: "github", scheme: webhook.GitHub, value: plain, other: otherPlain, id: "72d3162e-cc78-11e3-81ab-4c9367dc0958", wantID: "72d3162e-cc78-11e3-81ab-4c9367dc0958", header: "X-Hub-Signature-256", hex: true},
	{name: "slack", scheme: webhook.Slack, value: plain, other: otherPlain, wantID: "Ev1", header: "X-Slack-Signature", time: "X-Slack-Request-Timestamp", timed: true, hex: true},
	{name: "shopify", scheme: webhook.Shopify, value: plain, other: otherPlain, id: "b54557e4-bdd9-4b37", wantID: "b54557e4-bdd9-4b37", header: "X-Shopify-Hmac-Sha256"},
	{name: "hmac", scheme: custom, value: plain, other: otherPlain, id: "d-1", wantID: "d-1", header: "X-Acme-Signature", time: "X-Acme-Time", timed: true, hex: true},
}

func each(t *testing.T, test func(t *testing.T, s sender)) {
	t.Helper()
	for _, s := range senders {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			test(t, s)
		})
	}
}

// eachTimed runs a test for every scheme that signs a timestamp, or for all others.
func eachTimed(t *testing.T, timed bool, test func(t *testing.T, s sender)) {
	t.Helper()
	for _, s := range senders {
		if s.timed == timed {
			t.Run(s.name, func(t *testing.T) {
				t.Parallel()
				test(t, s)
			})
		}
	}
}

func secrets(values ...string) (all []webhook.Secret) {
	for _, v := range values {
		all = append(all, webhook.Secret{Value: v})
	}
	return all
}

// sign returns the headers of a delivery.
func (s sender) sign(t testing.TB, at time.Time, body string, values ...string) http.Header {
	t.Helper()
	if len(values) == 0 {
		values = []string{s.value}
	}
	h, err := s.scheme(secrets(values...)...).Sign(s.id, at, []byte(body))
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func (s sender) verifier(t testing.TB, change ...func(*webhook.Config)) *webhook.Verifier {
	t.Helper()
	c := webhook.Config{Scheme: s.scheme(secrets(s.value)...), Now: func() time.Time { return now }, Hooks: (&pawl.Counters{}).Hooks()}
	for _, f := range change {
		f(&c)
	}
	return verifier(t, c)
}

func verifier(t testing.TB, c webhook.Config) *webhook.Verifier {
	t.Helper()
	v, err := webhook.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// wantRefused requires one of the reasons, and an error without payload and secret.
func wantRefused(t *testing.T, s sender, m webhook.Verified, err error, reasons ...webhook.Reason) {
	t.Helper()
	got := webhook.ReasonOf(err)
	for _, r := range reasons {
		if got == r {
			if m.Body != nil || m.Key != "" {
				t.Errorf("a refused request came back as verified: %+v", m)
			}
			for _, never := range []string{s.value, s.other, "in_7", s.wantID} {
				if strings.Contains(err.Error(), never) {
					t.Errorf("%q holds %q", err, never)
				}
			}
			return
		}
	}
	t.Errorf("got %v, want %v", err, reasons)
}

func wantInvalid(t *testing.T, err error, part string) {
	t.Helper()
	if !errors.Is(err, pawl.ErrArgumentInvalid) || !strings.Contains(err.Error(), part) {
		t.Errorf("got %v, want %q", err, part)
	}
}
