package webhook_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/consumer"
	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/internal/testbed/pgtest"
	"github.com/pawl-go/pawl/pawltest"
	"github.com/pawl-go/pawl/transport/webhook"
)

// A delivery that is sent twice has one effect. Both requests are answered 200.
func ExampleReceiver() {
	ctx, stop := context.WithCancel(context.Background())
	example := &pgtest.Example{}
	defer example.End()
	config, _ := pgxpool.ParseConfig(pawltest.URL(example, "create table payment (event text, cents int)"))
	config.MaxConns = 8
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		panic(err)
	}
	defer pool.Close()
	// Load yours from your secret store.
	stripe := webhook.Stripe(webhook.Secret{Name: "2026-11", Value: "whsec_q3Rt5vXy8Zb2Nd4Gh6Jk"})
	quiet := (&pawl.Counters{}).Hooks()
	verifier, err := webhook.New(webhook.Config{Scheme: stripe, Hooks: quiet})
	if err != nil {
		panic(err)
	}
	receiver, err := webhook.NewReceiver(verifier, webhook.ReceiverConfig{Hooks: quiet})
	if err != nil {
		panic(err)
	}
	type charge struct{ Amount int }
	f, err := consumer.New(pool, consumer.Config{Name: "stripe", Source: receiver, Hooks: quiet, Handler: consumer.HandleTx(func(ctx context.Context, tx pgx.Tx, m consumer.Message[charge]) error {
		_, err := tx.Exec(ctx, "insert into payment values ($1, $2)", m.Key, m.Value.Amount)
		return err
	})})
	if err != nil {
		panic(err)
	}
	ended := make(chan error)
	go func() { ended <- f.Run(ctx) }()
	for range 2 {
		const body = `{"id":"evt_1","amount":1999}`
		r := httptest.NewRequest("POST", "/stripe", strings.NewReader(body))
		// signed for each attempt, as Stripe does
		r.Header, _ = stripe.Sign("", time.Now(), []byte(body))
		w := httptest.NewRecorder()
		receiver.ServeHTTP(w, r)
		fmt.Println(w.Code)
	}
	var payments, cents int
	err = pool.QueryRow(ctx, "select count(*), sum(p.cents) from payment as p").Scan(&payments, &cents)
	fmt.Println(payments, "payment of", cents, err)
	stop()
	fmt.Println(<-ended)
	// Output:
	// 200
	// 200
	// 1 payment of 1999 <nil>
	// <nil>
}

// Read reads and verifies a request. The sender gets only a status; the reason is logged.
func ExampleVerifier_Read() {
	// Load yours from your secret store.
	stripe := webhook.Stripe(webhook.Secret{Name: "2026-11", Value: "whsec_q3Rt5vXy8Zb2Nd4Gh6Jk"})
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
		// Store m.Key and m.Fingerprint in the transaction of your changes.
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
	// log: webhook_refused signature_mismatch
	// 401 "Unauthorized\n"
}

// GitHub signs neither time nor id. A key from the body detects a replay under a new id.
func ExampleGitHub() {
	github := webhook.GitHub(webhook.Secret{Value: "It's a Secret to Everybody"})
	verifier, err := webhook.New(webhook.Config{Scheme: github, Key: webhook.KeyBody()})
	if err != nil {
		fmt.Println(err)
		return
	}
	headers := http.Header{}
	headers.Set("X-Hub-Signature-256", "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17")
	for _, id := range []string{"72d3162e", "of-an-attacker"} {
		headers.Set("X-GitHub-Delivery", id)
		m, err := verifier.Verify(headers, []byte("Hello, World!"))
		fmt.Println(m.ID, m.IDSigned, m.Key[:15], err)
	}
	// Output:
	// 72d3162e false sha256:dffd6021 <nil>
	// of-an-attacker false sha256:dffd6021 <nil>
}

// HMAC describes a sender without a scheme in this package.
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

// GitHub never retries a delivery. A reconciler compares its list with the inbox and passes on the
// missing ones.
func ExampleReconciler() {
	// yours
	ctx, pool, receiver := context.Background(), (*pgxpool.Pool)(nil), (*webhook.Receiver)(nil)
	ledger, err := webhook.NewGitHubDeliveries(webhook.GitHubConfig{
		Hook:  "repos/acme/shop/hooks/42",
		Token: func(context.Context) (string, error) { return os.Getenv("GITHUB_TOKEN"), nil },
	})
	if err != nil {
		log.Fatal(err)
	}
	reconciler, err := webhook.NewReconciler(webhook.ReconcilerConfig{Receiver: receiver, Ledger: ledger,
		Missing: func(ctx context.Context, keys []string) ([]string, error) {
			return inbox.Missing(ctx, pool, "github", keys) // github is the name of the consumer
		}})
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(reconciler.Run(ctx))
}
