package webhook_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/pawl-go/pawl/transport/webhook"
)

// fuzz attacks a verifier in two ways. A made-up request, three header values and a body, is
// accepted only if made agrees. made is independent of the code under test. A signed request is
// accepted, but not with one bit changed in the signature, a signed header or the body.
func fuzz(f *testing.F, s sender, names [3]string, made func(values [3]string, body []byte) bool) {
	h := s.sign(f, now, body)
	f.Add(h.Get(names[0]), h.Get(names[1]), h.Get(names[2]), []byte(body), uint16(0))
	f.Add(strings.ToUpper(h.Get(names[0])), "0", "-1", []byte(`{"id":1e400}`), uint16(1))
	f.Add("t=1,v1=,v1,v1=0,t=", "1760000000", "msg_1.1", []byte("\x00\xff"), uint16(3))
	f.Add("v1,  v1a, v2,x v1", " 1760000000", "a,b", []byte("{}"), uint16(9))
	f.Add("sha256=", "", "é", []byte(strings.Repeat("[", 2000)), uint16(77))
	v := s.verifier(f)
	f.Fuzz(func(t *testing.T, a, b, c string, text []byte, at uint16) {
		values, h := [3]string{a, b, c}, http.Header{}
		for i, name := range names {
			if name != "" && values[i] != "" {
				h.Set(name, values[i])
			}
		}
		m, err := v.Verify(h, text)
		if (err == nil) != (webhook.ReasonOf(err) == "") {
			t.Fatalf("an error that is no refusal: %v", err)
		}
		if err == nil && (!made(values, text) || !bytes.Equal(m.Body, text) || (m.Key == "") == (m.KeyFault == "") || len(m.Key) > 255) {
			t.Fatalf("accepted: %q %q: %+v", values, text, m)
		}
		if len(text) == 0 {
			return
		}
		genuine := s.sign(t, now, string(text))
		if _, err := v.Verify(genuine, text); err != nil {
			t.Fatalf("our own signature: %v", err)
		}
		for _, name := range names {
			if value := genuine.Get(name); name != "" && value != "" && (name == s.header || s.timed) {
				i := int(at) % len(value)
				changed := genuine.Clone()
				changed.Set(name, value[:i]+string(value[i]^1)+value[i+1:])
				if m, err := v.Verify(changed, text); err == nil {
					t.Fatalf("accepted with %s %q: %+v", name, changed.Get(name), m)
				}
			}
		}
		forged := slices.Clone(text)
		forged[int(at)%len(text)] ^= 1 << (at % 8)
		if m, err := v.Verify(genuine, forged); err == nil {
			t.Fatalf("accepted %q for %q: %+v", forged, text, m)
		}
	})
}

func mac256(secret, content string) []byte {
	m := hmac.New(sha256.New, []byte(secret))
	m.Write([]byte(content))
	return m.Sum(nil)
}

// timely reports whether the text is a time that these verifiers accept.
func timely(text string) bool {
	at, err := strconv.ParseInt(text, 10, 64)
	return err == nil && strconv.FormatInt(at, 10) == text && at >= now.Unix()-300 && at <= now.Unix()+300
}

func standardMade(values [3]string, body []byte) bool {
	raw, _ := base64.StdEncoding.DecodeString(strings.TrimPrefix(whsec, "whsec_"))
	want := "v1," + base64.StdEncoding.EncodeToString(mac256(string(raw), values[2]+"."+values[1]+"."+string(body)))
	return timely(values[1]) && slices.Contains(strings.Split(values[0], " "), want)
}

func FuzzStandard(f *testing.F) {
	fuzz(f, senders[0], [3]string{"Webhook-Signature", "Webhook-Timestamp", "Webhook-Id"}, standardMade)
}

func FuzzStandardAsymmetric(f *testing.F) {
	public, err := base64.StdEncoding.DecodeString(publicOf(f, whsk))
	if err != nil {
		f.Fatal(err)
	}
	fuzz(f, senders[1], [3]string{"Webhook-Signature", "Webhook-Timestamp", "Webhook-Id"}, func(values [3]string, body []byte) bool {
		for one := range strings.SplitSeq(values[0], " ") {
			raw, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(one, "v1a,"))
			if err == nil && ed25519.Verify(public, []byte(values[2]+"."+values[1]+"."+string(body)), raw) {
				return timely(values[1])
			}
		}
		return false
	})
}

func FuzzSvix(f *testing.F) {
	fuzz(f, senders[2], [3]string{"Svix-Signature", "Svix-Timestamp", "Svix-Id"}, standardMade)
}

func timedMade(values [3]string, body []byte) bool {
	timestamp := ""
	for part := range strings.SplitSeq(values[0], ",") {
		if after, found := strings.CutPrefix(part, "t="); found {
			timestamp = after
		}
	}
	want := "v1=" + hex.EncodeToString(mac256(plain, timestamp+"."+string(body)))
	return timely(timestamp) && slices.Contains(strings.Split(values[0], ","), want)
}

func FuzzStripe(f *testing.F) {
	fuzz(f, senders[3], [3]string{"Stripe-Signature"}, timedMade)
}

func FuzzMux(f *testing.F) {
	fuzz(f, senders[4], [3]string{"Mux-Signature"}, timedMade)
}

func FuzzGitHub(f *testing.F) {
	fuzz(f, senders[5], [3]string{"X-Hub-Signature-256", "", "X-Github-Delivery"}, func(values [3]string, body []byte) bool {
		return values[0] == "sha256="+hex.EncodeToString(mac256(plain, string(body)))
	})
}

func FuzzSlack(f *testing.F) {
	fuzz(f, senders[6], [3]string{"X-Slack-Signature", "X-Slack-Request-Timestamp"}, func(values [3]string, body []byte) bool {
		return timely(values[1]) && values[0] == "v0="+hex.EncodeToString(mac256(plain, "v0:"+values[1]+":"+string(body)))
	})
}

func FuzzShopify(f *testing.F) {
	fuzz(f, senders[7], [3]string{"X-Shopify-Hmac-Sha256", "X-Shopify-Topic", "X-Shopify-Webhook-Id"}, func(values [3]string, body []byte) bool {
		return values[0] == base64.StdEncoding.EncodeToString(mac256(plain, string(body)))
	})
}

func FuzzHMAC(f *testing.F) {
	fuzz(f, senders[8], [3]string{"X-Acme-Signature", "X-Acme-Time", "X-Acme-Id"}, func(values [3]string, body []byte) bool {
		m := hmac.New(sha512.New, []byte(plain))
		m.Write([]byte(values[2] + "|" + values[1] + "|" + string(body)))
		return timely(values[1]) && values[0] == hex.EncodeToString(m.Sum(nil))
	})
}
