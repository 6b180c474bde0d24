package webhook_test

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/consumer"
	"github.com/pawl-go/pawl/internal/testbed/patience"
	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/pawltest"
	"github.com/pawl-go/pawl/transport/webhook"
)

// effects has no unique constraint, so that duplicates show.
const effects = "create table effect (at bigint generated always as identity, key text not null, body text not null)"

// A bed is a receiver behind HTTP, with a consumer and a real database.
type bed struct {
	*testing.T
	sender   sender
	pool     *pgxpool.Pool
	asks     *pgxpool.Pool // at READ COMMITTED, where a SELECT loses no race
	counters *pawl.Counters
	verifier webhook.Config
	config   webhook.ReceiverConfig
	consumer consumer.Config
	handle   func(context.Context, pgx.Tx, consumer.Message[[]byte]) error
	sql      func(context.Context, *sql.Tx, consumer.Message[[]byte]) error // replaces handle
	handler  consumer.Handler                                               // replaces both
	policy   consumer.TxPolicy
	receiver *webhook.Receiver
	server   *httptest.Server
	stop     func() // stops the consumer and waits
}

func senderNamed(name string) sender {
	for _, s := range senders {
		if s.name == name {
			return s
		}
	}
	panic(name)
}

// receive starts a bed after change has changed it.
func receive(t *testing.T, name string, change ...func(*bed)) *bed {
	t.Helper()
	return receiveOn(t, pawltest.URL(t, effects), name, change...)
}

func receiveOn(t *testing.T, url, name string, change ...func(*bed)) *bed {
	t.Helper()
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = 8
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	config = config.Copy()
	delete(config.ConnConfig.RuntimeParams, "default_transaction_isolation")
	asks, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(asks.Close)
	b := &bed{T: t, sender: senderNamed(name), pool: pool, asks: asks, counters: &pawl.Counters{}}
	hooks := pawl.Join(b.counters.Hooks(), pawl.Hooks{OnEvent: func(_ context.Context, e pawl.Event) {
		if e.Err != nil {
			t.Logf("%s %s %s: %v", e.Kind, e.Op, e.Key, e.Err)
		}
	}})
	b.verifier = webhook.Config{Scheme: b.sender.scheme(secrets(b.sender.value)...), Hooks: hooks}
	b.config = webhook.ReceiverConfig{ResponseTimeout: 10 * time.Second, Hooks: hooks}
	b.consumer, b.handle = consumer.Config{Name: "hooks", Hooks: hooks}, handle
	b.policy.Policy = consumer.Policy{Lease: time.Minute, Backoff: job.Backoff{Base: 10 * time.Millisecond, Max: 50 * time.Millisecond}}
	for _, f := range change {
		f(b)
	}
	b.receiver = newReceiver(t, verifier(t, b.verifier), b.config)
	b.consumer.Source = b.receiver
	b.server = httptest.NewServer(b.receiver)
	t.Cleanup(b.server.Close)
	b.start()
	return b
}

func newReceiver(t *testing.T, v *webhook.Verifier, c webhook.ReceiverConfig) *webhook.Receiver {
	t.Helper()
	r, err := webhook.NewReceiver(v, c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (b *bed) start() {
	b.Helper()
	b.consumer.Handler = consumer.HandleTx(b.handle).With(b.policy)
	if b.sql != nil {
		b.consumer.Handler = consumer.HandleSQL(b.sql).With(b.policy)
	}
	if b.handler != nil {
		b.consumer.Handler = b.handler
	}
	f, err := consumer.New(b.pool, b.consumer)
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f.Run(ctx) }()
	b.stop = func() {
		cancel()
		if err := <-done; err != nil {
			b.Errorf("run: %v", err)
		}
		done <- nil
	}
	b.Cleanup(b.stop)
}

func handle(ctx context.Context, tx pgx.Tx, d consumer.Message[[]byte]) error {
	_, err := tx.Exec(ctx, "insert into effect (key, body) values ($1, $2)", d.Key, string(d.Payload))
	return err
}

// An answer is the response that the sender gets.
type answer struct {
	status int
	header http.Header
	body   string
}

// post sends a request with headers that are already signed.
func (b *bed) post(h http.Header, body string) answer {
	b.Helper()
	a, err := post(b.Context(), b.server.URL, h, body)
	if err != nil {
		b.Fatal(err)
	}
	return a
}

func post(ctx context.Context, url string, h http.Header, body string) (answer, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	r.Header = h.Clone()
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return answer{response.StatusCode, response.Header, string(text)}, err
}

// send signs a delivery now and sends it. id is for schemes with a header for it.
func (b *bed) send(id, body string) answer {
	b.Helper()
	return b.post(b.sign(id, body), body)
}

func (b *bed) sign(id, body string) http.Header {
	b.Helper()
	h, err := b.verifier.Scheme.Sign(id, time.Now(), []byte(body))
	if err != nil {
		b.Fatal(err)
	}
	return h
}

// began is the creation time of all events here, so that a repeated event has the same octets.
var began = time.Now().Unix()

// event is a body in Stripe's form.
func event(id, kind, object string) string {
	return fmt.Sprintf(`{"id":%q,"type":%q,"data":{"object":{"id":%q}},"created":%d}`, id, kind, object, began)
}

func (b *bed) want(a answer, status int) {
	b.Helper()
	if a.status != status || a.body != http.StatusText(status)+"\n" {
		b.Errorf("answered %d %q, want %d", a.status, a.body, status)
	}
	if after := a.header.Get("Retry-After"); (status == http.StatusServiceUnavailable) != (after != "") {
		b.Errorf("%d came with Retry-After %q", status, after)
	}
}

func (b *bed) count(query string, args ...any) (n int) {
	b.Helper()
	if err := b.asks.QueryRow(b.Context(), query, args...).Scan(&n); err != nil {
		b.Fatal(err)
	}
	return n
}

func (b *bed) wantEffects(want int) {
	b.Helper()
	if got, keys := b.count("select count(*) from effect"), b.count("select count(distinct key) from effect"); got != want || keys != want {
		b.Errorf("%d effects of %d keys, want %d of each", got, keys, want)
	}
}

func (b *bed) until(what string, reached func() bool) {
	b.Helper()
	patience.Until(b, what, reached)
}

// letters returns the dead letters as "kind of the inbox key: payload", ordered by payload.
func (b *bed) letters() string {
	b.Helper()
	var text *string
	err := b.asks.QueryRow(b.Context(), `select string_agg(split_part(j.headers ->> 'pawl-inbox-key', '/', 2) || ': ' || convert_from(j.payload, 'UTF8'), e'\n' order by j.payload)
		from pawl.job as j where j.status = 'dead_letter'`).Scan(&text)
	if err != nil {
		b.Fatal(err)
	}
	if text == nil {
		return ""
	}
	return *text
}
