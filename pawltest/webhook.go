package pawltest

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/consumer"
	"github.com/pawl-go/pawl/internal/pace"
	"github.com/pawl-go/pawl/job"
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
	lastErr := &lastError{}
	cfg.Handler, cfg.Presence = impatient(cfg.Handler), job.Presence{Off: true}
	cfg.Hooks = pawl.Join(cfg.Hooks, pawl.Hooks{OnEvent: lastErr.event})
	c, err := consumer.New(pool, cfg)
	if err != nil {
		tb.Fatalf("pawltest: %v", err)
		return nil
	}
	var responses []*http.Response
	err = whileRunning(context.Background(), c.Run, drainLimit, func(ctx context.Context) error {
		for _, r := range requests {
			w := httptest.NewRecorder()
			receiver.ServeHTTP(w, r.WithContext(ctx))
			responses = append(responses, w.Result())
		}
		for {
			s, err := look(ctx, pool, []string{"inbox/" + cfg.Name})
			work := s.storedWork()
			if err == nil && len(work) == 0 {
				return nil
			}
			if err != nil && ctx.Err() == nil {
				return err
			}
			if !pace.Sleep(ctx, 5*time.Millisecond) {
				return fmt.Errorf("after %v there is still work on stored deliveries:%s%s", drainLimit, listed(work), lastErr)
			}
		}
	})
	if err != nil {
		tb.Fatalf("pawltest: %v", err)
	}
	return responses
}
