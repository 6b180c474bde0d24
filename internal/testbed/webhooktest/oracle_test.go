package webhooktest

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-github/v74/github"
	"github.com/slack-go/slack"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	stripe "github.com/stripe/stripe-go/v84/webhook"
	svix "github.com/svix/svix-webhooks/go"

	"github.com/pawl-go/pawl/transport/webhook"
)

// An oracle is a sender's library.
type oracle struct {
	name   string
	scheme func(...webhook.Secret) webhook.Scheme
	secret func(r *rand.Rand) string
	id     bool // a header contains the id
	// verify is the library's function.
	verify func(secret string, h http.Header, body []byte) error
	// sign is the library's function; nil if the library only verifies.
	sign func(secret, id string, at time.Time, body []byte) (http.Header, error)
}

var oracles = []oracle{
	{name: "standard-webhooks", scheme: webhook.StandardWebhooks, secret: whsec, id: true,
		verify: func(secret string, h http.Header, body []byte) error {
			w, err := standardwebhooks.NewWebhook(secret)
			return errors.Join(err, w.Verify(body, h))
		},
		sign: func(secret, id string, at time.Time, body []byte) (http.Header, error) {
			w, err := standardwebhooks.NewWebhook(secret)
			if err != nil {
				return nil, err
			}
			signature, err := w.Sign(id, at, body)
			return headers("webhook-id", id, "webhook-timestamp", strconv.FormatInt(at.Unix(), 10), "webhook-signature", signature), err
		}},
	{name: "svix", scheme: webhook.Svix, secret: whsec, id: true,
		verify: func(secret string, h http.Header, body []byte) error {
			w, err := svix.NewWebhook(secret)
			return errors.Join(err, w.Verify(body, h))
		},
		sign: func(secret, id string, at time.Time, body []byte) (http.Header, error) {
			w, err := svix.NewWebhook(secret)
			if err != nil {
				return nil, err
			}
			signature, err := w.Sign(id, at, body)
			return headers("svix-id", id, "svix-timestamp", strconv.FormatInt(at.Unix(), 10), "svix-signature", signature), err
		}},
	{name: "stripe-go", scheme: webhook.Stripe, secret: plain,
		verify: func(secret string, h http.Header, body []byte) error {
			return stripe.ValidatePayload(body, h.Get("Stripe-Signature"), secret)
		},
		sign: func(secret, _ string, at time.Time, body []byte) (http.Header, error) {
			p := stripe.GenerateTestSignedPayload(&stripe.UnsignedPayload{Payload: body, Secret: secret, Timestamp: at})
			return headers("Stripe-Signature", p.Header), nil
		}},
	{name: "go-github", scheme: webhook.GitHub, secret: plain, id: true,
		verify: func(secret string, h http.Header, body []byte) error {
			r, err := http.NewRequest(http.MethodPost, "/", bytes.NewReader(body))
			if err != nil {
				return err
			}
			r.Header = h.Clone()
			r.Header.Set("Content-Type", "application/json")
			payload, err := github.ValidatePayload(r, []byte(secret))
			if err == nil && !bytes.Equal(payload, body) {
				err = errors.New("another payload")
			}
			return err
		}},
	{name: "slack-go", scheme: webhook.Slack, secret: plain,
		verify: func(secret string, h http.Header, body []byte) error {
			v, err := slack.NewSecretsVerifier(h, secret)
			if err != nil {
				return err
			}
			_, err = v.Write(body)
			return errors.Join(err, v.Ensure())
		}},
}

func headers(pairs ...string) http.Header {
	h := http.Header{}
	for i := 0; i < len(pairs); i += 2 {
		h.Set(pairs[i], pairs[i+1])
	}
	return h
}

func octets(r *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

func whsec(r *rand.Rand) string {
	return "whsec_" + base64.StdEncoding.EncodeToString(octets(r, 24+r.IntN(41)))
}

func plain(r *rand.Rand) string { return fmt.Sprintf("%x", octets(r, 8+r.IntN(60))) }

// random returns a source and logs its seed. PAWL_SEED repeats a run.
func random(t *testing.T) *rand.Rand {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("PAWL_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("PAWL_SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

const rounds = 500

// The library accepts our signatures and we accept the library's. Neither accepts a message with
// one bit changed. Bodies are random octets of any length, and times are within the tolerance of
// both.
func TestOracles(t *testing.T) {
	t.Parallel()
	for _, o := range oracles {
		t.Run(o.name, func(t *testing.T) {
			t.Parallel()
			r := random(t)
			for range rounds {
				secret, other := o.secret(r), o.secret(r)
				body, at := octets(r, 1+r.IntN(4000)), time.Now().Add(time.Duration(r.IntN(580)-290)*time.Second)
				id := ""
				if o.id {
					id = fmt.Sprintf("msg_%x", octets(r, 1+r.IntN(20)))
				}
				o.theyVerify(t, secret, other, id, at, body, r)
				if o.sign != nil {
					o.weVerify(t, secret, other, id, at, body, r)
				}
			}
		})
	}
}

func (o oracle) theyVerify(t *testing.T, secret, other, id string, at time.Time, body []byte, r *rand.Rand) {
	t.Helper()
	h, err := o.scheme(webhook.Secret{Value: secret}).Sign(id, at, body)
	if err != nil {
		t.Fatal(err)
	}
	if err := o.verify(secret, h, body); err != nil {
		t.Fatalf("%s refuses what we sign: %v", o.name, err)
	}
	if o.verify(other, h, body) == nil || o.verify(secret, h, changed(body, r)) == nil {
		t.Fatal("the oracle accepts anything")
	}
}

func (o oracle) weVerify(t *testing.T, secret, other, id string, at time.Time, body []byte, r *rand.Rand) {
	t.Helper()
	h, err := o.sign(secret, id, at, body)
	if err != nil {
		t.Fatal(err)
	}
	v, err := webhook.New(webhook.Config{Scheme: o.scheme(webhook.Secret{Name: "other", Value: other}, webhook.Secret{Name: "it", Value: secret})})
	if err != nil {
		t.Fatal(err)
	}
	m, err := v.Verify(h, body)
	if err != nil || m.Secret != "it" || m.ID != id || m.SentAt.Unix() != at.Unix() {
		t.Fatalf("we refuse what %s signs: %+v, %v", o.name, m, err)
	}
	if _, err := v.Verify(h, changed(body, r)); webhook.ReasonOf(err) != webhook.ReasonSignatureMismatch {
		t.Fatal(err)
	}
}

func changed(body []byte, r *rand.Rand) []byte {
	c := bytes.Clone(body)
	c[r.IntN(len(c))] ^= 1 << r.IntN(8)
	return c
}

// In these cases we are stricter than the sender's library on purpose.
func TestOracles_WhereWeRefuseMore(t *testing.T) {
	t.Parallel()
	const secret, body = "whsec_q3Rt5vXy8Zb2Nd4Gh6Jk", `{"id":"evt_1"}`
	ahead := stripe.GenerateTestSignedPayload(&stripe.UnsignedPayload{Payload: []byte(body), Secret: secret, Timestamp: time.Now().Add(24 * time.Hour)})
	if err := stripe.ValidatePayload([]byte(body), ahead.Header, secret); err != nil {
		t.Errorf("stripe-go has learnt to refuse the future: %v; say so in traps.md, T48", err)
	}
	v, err := webhook.New(webhook.Config{Scheme: webhook.Stripe(webhook.Secret{Value: secret})})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := v.Verify(headers("Stripe-Signature", ahead.Header), []byte(body)); webhook.ReasonOf(err) != webhook.ReasonTimestampFuture {
		t.Error(err)
	}
	r, err := http.NewRequest(http.MethodPost, "/", bytes.NewReader([]byte(body)))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	if _, err := github.ValidatePayload(r, nil); err != nil {
		t.Errorf("go-github has learnt to refuse an empty secret: %v; say so in traps.md, T47", err)
	}
	if _, err := webhook.New(webhook.Config{Scheme: webhook.GitHub(webhook.Secret{})}); err == nil {
		t.Error("an empty secret was taken")
	}
}
