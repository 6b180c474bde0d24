package pawltest

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl/consumer"
	"github.com/pawl-go/pawl/transport/webhook"
)

// SignWebhook returns a sender's request: a POST of JSON to target, signed now. Pass it to a
// handler, or to an [http.Client] if target is a complete URL. id is the sender's id of the
// delivery; leave it empty for schemes whose body contains it, such as Stripe's. A body can be read
// once, so make a new request for each attempt.
func SignWebhook(tb testing.TB, scheme webhook.Scheme, target, id string, body []byte) *http.Request {
	tb.Helper()
	headers, err := scheme.Sign(id, time.Now(), body)
	if err != nil {
		tb.Fatalf("pawltest: %v", err)
	}
	r, err := http.NewRequest(http.MethodPost, target, bytes.NewReader(body))
	if err != nil {
		tb.Fatalf("pawltest: %v", err)
	}
	r.Header = headers
	r.Header.Set("Content-Type", "application/json")
	return r
}

// ServeWebhooks runs a [consumer.Consumer] on pool whose Source is a [webhook.Receiver]. It serves
// the requests one after the other, and waits until every stored delivery is done or a dead letter.
// It returns the responses. See [SignWebhook].
//
// If the handler's policy sets no back-off, it is at most 10 ms. The consumer holds no presence
// lock. The test fails if there is still work after a minute.
func ServeWebhooks(tb testing.TB, pool *pgxpool.Pool, cfg consumer.Config, requests ...*http.Request) []*http.Response {
	tb.Helper()
	receiver, ok := cfg.Source.(*webhook.Receiver)
	if !ok {
		tb.Fatalf("pawltest: the Source is a %T, want a *webhook.Receiver", cfg.Source)
		return nil
	}
	var responses []*http.Response
	send := func(ctx context.Context) {
		for _, r := range requests {
			w := httptest.NewRecorder()
			receiver.ServeHTTP(w, r.WithContext(ctx))
			responses = append(responses, w.Result())
		}
	}
	runConsumer(tb, pool, cfg, drainLimit, send, nothingOpen)
	return responses
}
