package webhook_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/transport/webhook"
)

// A handler reads and verifies in one step. Its sender learns a status; why is for the log.
func ExampleVerifier_Read() {
	stripe := webhook.Stripe(webhook.Secret{Name: "2026-11", Value: "whsec_q3Rt5vXy8Zb2Nd4Gh6Jk"}) // yours comes from your secret store
	verifier, err := webhook.New(webhook.Config{Scheme: stripe, Hooks: pawl.Hooks{OnEvent: func(_ context.Context, e pawl.Event) {
		fmt.Println("log:", e.Kind, webhook.ReasonOf(e.Err))
	}}})
	if err != nil {
		fmt.Println(err)
		return
	}
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m, err := verifier.Read(w, r)
		if err != nil {
			webhook.Refuse(w, err)
			return
		}
		// Remember m.Key with m.Fingerprint, in the transaction of what you do about it.
		fmt.Printf("handle %s, signed with %s\n", m.Key, m.Secret)
	})
	send := func(signed, sent string) {
		r := httptest.NewRequest("POST", "/stripe", strings.NewReader(sent))
		r.Header, _ = stripe.Sign("", time.Now(), []byte(signed))
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		fmt.Printf("%d %q\n", w.Code, w.Body)
	}
	send(`{"id":"evt_1","amount":5}`, `{"id":"evt_1","amount":5}`)
	send(`{"id":"evt_1","amount":5}`, `{"id":"evt_1","amount":500}`)
	// Output:
	// handle evt_1, signed with 2026-11
	// 200 ""
	// log: refused signature_mismatch
	// 401 "Unauthorized\n"
}

// GitHub signs neither time nor id, so whoever saw a request can send it again under a new id. A second key from the signed
// body recognises that.
func ExampleGitHub() {
	github := webhook.GitHub(webhook.Secret{Value: "It's a Secret to Everybody"})
	verifier, err := webhook.New(webhook.Config{Scheme: github, SemanticKey: webhook.KeyBody()})
	if err != nil {
		fmt.Println(err)
		return
	}
	headers := http.Header{}
	headers.Set("X-Hub-Signature-256", "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17")
	for _, id := range []string{"72d3162e", "of-an-attacker"} {
		headers.Set("X-GitHub-Delivery", id)
		m, err := verifier.Verify(headers, []byte("Hello, World!"))
		fmt.Println(m.Key, m.IDSigned, m.SemanticKey[:15], err)
	}
	// Output:
	// 72d3162e false sha256:dffd6021 <nil>
	// of-an-attacker false sha256:dffd6021 <nil>
}

// A sender that has no scheme of its own here is described.
func ExampleHMAC() {
	acme := webhook.HMAC(webhook.HMACConfig{
		Name: "acme", Header: "X-Acme-Signature", Prefix: "sha512=", Hash: webhook.SHA512,
		TimestampHeader: "X-Acme-Time", IDHeader: "X-Acme-Delivery", Signed: "{id}:{timestamp}:{body}",
	}, webhook.Secret{Value: "fifteen is too short"})
	verifier, err := webhook.New(webhook.Config{Scheme: acme, Tolerance: time.Minute})
	if err != nil {
		fmt.Println(err)
		return
	}
	headers, _ := acme.Sign("d-1", time.Now().Add(-2*time.Minute), []byte("hello"))
	_, err = verifier.Verify(headers, []byte("hello"))
	fmt.Println(webhook.ReasonOf(err))
	// Output: timestamp_stale
}
