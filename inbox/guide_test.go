package inbox_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/testbed/patience"
	"github.com/pawl-go/pawl/outbox"
	"github.com/pawl-go/pawl/pawltest"
	"github.com/pawl-go/pawl/transport/webhook"
)

// guided returns a database in which the SQL of docs/guides/plpgsql.md was run, each block by
// itself: CALL must not be in a transaction.
func guided(t *testing.T) *pgxpool.Pool {
	t.Helper()
	page, err := os.ReadFile("../docs/guides/plpgsql.md")
	if err != nil {
		t.Fatal(err)
	}
	pool := pawltest.DB(t)
	for _, m := range regexp.MustCompile("(?ms)^```sql\n(.*?)^```").FindAllStringSubmatch(string(page), -1) {
		if _, err := pool.Exec(t.Context(), m[1], pgx.QueryExecModeSimpleProtocol); err != nil {
			t.Fatal(err)
		}
	}
	return pool
}

func ask(t *testing.T, pool *pgxpool.Pool, query string) (answer string) {
	t.Helper()
	if err := pool.QueryRow(t.Context(), query).Scan(&answer); err != nil {
		return string(pawl.CodeOf(err))
	}
	return answer
}

// The guide's functions for messages work. The page has sent e1 twice, e2, and evt_1 three times.
func TestGuide_Consume(t *testing.T) {
	t.Parallel()
	pool := guided(t)
	for _, c := range []struct{ query, want string }{
		{"select consume_case_event_once('e1', 1, 'new', 'open')", "duplicate_ignored"},
		{"select consume_case_event_once('e1', 1, 'new', 'closed')", "P4002"},
		{"select consume_case_event_once('e2', 1, 'closed', 'new')", "duplicate_ignored"},
		{"select c.status || ' ' || (select count(*) from case_audit) from cases as c", "open 1"},
		{"select d.last_error from pawl_v1.dead_letters as d where d.kind = 'case event'", "case 1 is not closed"},
		{"select consume_webhook_once('stripe', 'evt_1', '{\"type\": \"refunded\"}', 'whsec_1')", "mismatch"},
		{"select consume_webhook_once('mux', 'evt_1', '{\"type\": \"ready\"}', 'k')", "processed"},
		{"select string_agg(p.provider || ' ' || p.kind, ', ' order by p.provider) from webhook_processed as p", "mux ready, stripe paid"},
		{"select count(*) || ' ' || max(d.headers ->> 'given_hash') from pawl_v1.dead_letters as d where d.kind = 'webhook' and d.last_error like '%another payload'",
			"1 37e372cb178d470308b46c7c958dff4987a77742a5c3c1b37805e4e157b24b9a"},
		{"select string_agg(convert_from(d.payload, 'UTF8') || ' ' || d.verified_by, ', ' order by d.received_at) from pawl.delivery as d",
			`{"type": "paid"} whsec_1, {"type": "refunded"} whsec_1, {} whsec_1, {"type": "ready"} k`},
		{"select string_agg(p.event_type || ' ' || p.sink, ', ' order by p.job_id) from pawl_v1.outbox_pending as p where p.event_type <> 'OrderCreated'",
			"CaseMoved default, WebhookProcessed default, WebhookProcessed default"},
	} {
		if got := ask(t, pool, c.query); got != c.want {
			t.Errorf("%s: %s, want %s", c.query, got, c.want)
		}
	}
}

// A relay publishes each event that the guide's functions append once. A duplicate message appends
// nothing. The page itself has created an order, moved a case and processed a webhook.
func TestGuide_ConsumedIsPublished(t *testing.T) {
	t.Parallel()
	pool := guided(t)
	if said := ask(t, pool, "select consume_case_event_once('e1', 1, 'new', 'open')"); said != "duplicate_ignored" {
		t.Errorf("said %s", said)
	}
	published := make(chan string, 10)
	relay, err := outbox.NewRelay(pool, outbox.Config{Poll: 10 * time.Millisecond, Sink: outbox.Func(func(_ context.Context, m pawl.Message) error {
		published <- m.Type + " " + m.AggregateID + " " + string(m.Payload)
		return nil
	})})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- relay.Run(ctx) }()
	var got []string
	for len(got) < 3 {
		got = append(got, patience.Receive(t, fmt.Sprintf("three are published, not only %q", got), published))
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	slices.Sort(got)
	if want := []string{`CaseMoved 1 {"to": "open", "case": 1, "from": "new"}`, `OrderCreated 1 {"id": 1, "cents": 1250}`, `WebhookProcessed  {"type": "paid"}`}; !slices.Equal(got, want) {
		t.Errorf("published %q, want %q", got, want)
	}
	if len(published) > 0 {
		t.Errorf("also published: %q", <-published)
	}
}

// Many sessions send the same webhook at once, or the same message: one processes it.
func TestGuide_ConsumeRace(t *testing.T) {
	t.Parallel()
	pool := guided(t)
	for _, call := range []string{
		"select consume_webhook_once('stripe', 'evt_2', '{\"type\": \"paid\"}', 'whsec_1')",
		"select consume_case_event_once('e3', 1, 'open', 'shut')",
	} {
		var mu sync.Mutex
		told := map[string]int{}
		var all sync.WaitGroup
		for range 12 {
			all.Go(func() {
				said := ask(t, pool, call)
				mu.Lock()
				told[said]++
				mu.Unlock()
			})
		}
		all.Wait()
		if told["processed"] != 1 || told["processed"]+told["duplicate_ignored"]+told["55P03"] != 12 {
			t.Errorf("%s: reported %v", call, told)
		}
	}
	if n := ask(t, pool, "select count(*)::text from case_audit as a where a.event_id = 'e3'"); n != "1" {
		t.Errorf("%s cases moved", n)
	}
	if n := ask(t, pool, "select count(*)::text from webhook_processed as p where p.event_id = 'evt_2'"); n != "1" {
		t.Errorf("%s effects", n)
	}
}

// signedAt signs a body as Stripe does, at another time than now.
func signedAt(secret, body string, at time.Time) string {
	mac := hmac.New(sha256.New, []byte(secret))
	fmt.Fprintf(mac, "%d.%s", at.Unix(), body)
	return fmt.Sprintf("t=%d,v1=%x", at.Unix(), mac.Sum(nil))
}

// A signed webhook that cannot be read or applied is kept once as a dead letter and answered 200:
// the sender would repeat it for days.
func TestGuide_Unreadable(t *testing.T) {
	t.Parallel()
	pool := guided(t)
	for _, body := range []string{"not json", `"x"`, `[]`, `7`, `{ }`, `{"id": null, "type": "paid"}`, `{"id": "", "type": "paid"}`, `{"id": {"a": 1}`, "\xff",
		`{"id": "` + strings.Repeat("a", 256) + `", "type": "paid"}`, strings.Repeat("[", 100_000), `{"id": "\u0000", "type": "paid"}`, `{"id": "untyped"}`} {
		name := body[:min(len(body), 20)]
		before := ask(t, pool, "select count(*)::text from pawl_v1.dead_letters")
		for range 2 {
			var status int
			err := pool.QueryRow(t.Context(), "select receive_webhook('stripe', $1, $2)", signedAt("for this page only", body, time.Now()), []byte(body)).Scan(&status)
			if err != nil || status != 200 {
				t.Errorf("%q: %d, %v", name, status, err)
			}
		}
		if now := ask(t, pool, fmt.Sprintf("select (count(*) - %s)::text from pawl_v1.dead_letters", before)); now != "1" {
			t.Errorf("%q: %s dead letters", name, now)
		}
		kept := fmt.Sprintf("select count(*)::text from pawl.delivery as d join pawl_v1.dead_letters as l on l.payload = d.payload where d.payload = '\\x%x'", body)
		if n := ask(t, pool, kept); n != "1" {
			t.Errorf("%q is kept %s times", name, n)
		}
	}
	if n := ask(t, pool, "select count(*)::text from webhook_processed as p where p.provider = 'stripe' and p.event_id <> 'evt_1'"); n != "0" {
		t.Errorf("%s effects", n)
	}
}

// receive_webhook takes what package webhook signs, and refuses what is altered, old, or signed
// with another secret. A retry with another count of pending webhooks is a duplicate.
func TestGuide_Signature(t *testing.T) {
	t.Parallel()
	pool := guided(t)
	sign := func(secret, body string) string {
		scheme := webhook.Stripe(webhook.Secret{Value: secret})
		return pawltest.SignWebhook(t, scheme, "/", "", []byte(body)).Header.Get("Stripe-Signature")
	}
	receive := func(signature, body string) (status string) {
		t.Helper()
		err := pool.QueryRow(t.Context(), "select receive_webhook('stripe', $1, $2)::text", signature, []byte(body)).Scan(&status)
		if err != nil {
			return err.Error()
		}
		return status
	}
	const secret, body, again = "for this page only", `{"id":"evt_9","type":"paid","pending_webhooks":2}`, `{"id":"evt_9","type":"paid","pending_webhooks":1}`
	signature := sign(secret, body)
	for _, c := range []struct{ signature, body, want string }{
		{signature, again, "400"},
		{sign("another secret, as long", body), body, "400"},
		{strings.Replace(signature, "t=", "t=1", 1), body, "400"},
		{"", body, "400"},
		{"v1=00", body, "400"},
		{signature + ",t=1", again, "400"},
		{signedAt(secret, body, time.Now().Add(-time.Hour)), body, "400"},
		{signedAt(secret, body, time.Now().Add(time.Hour)), body, "400"},
		{signature, body, "200"},
		{"v1=" + strings.Repeat("0", 64) + "," + signature, body, "200"},
		{sign(secret, again), again, "200"},
	} {
		if got := receive(c.signature, c.body); got != c.want {
			t.Errorf("%s with %s: %s, want %s", c.body, c.signature, got, c.want)
		}
	}
	if n := ask(t, pool, "select count(*)::text from webhook_processed as p where p.event_id = 'evt_9'"); n != "1" {
		t.Errorf("%s effects", n)
	}
	if by := ask(t, pool, "select d.verified_by from pawl.delivery as d where d.key = 'evt_9'"); by != "whsec_1" {
		t.Errorf("verified by %q", by)
	}
	if n := ask(t, pool, "select count(*)::text from pawl_v1.dead_letters as d where d.payload = convert_to('"+again+"', 'UTF8')"); n != "0" {
		t.Errorf("%s retries are taken for another event", n)
	}
}
