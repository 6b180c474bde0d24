package webhook_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/pawltest"
	"github.com/pawl-go/pawl/transport/webhook"
)

// Replays of a request within the tolerance verify and have one effect, because the key is stored.
// Another payload under a known id is a mismatch, except for members that the sender changes.
func TestReplay_OneEffect(t *testing.T) {
	t.Parallel()
	pool := pawltest.DB(t, "create table effect (key text not null)")
	for _, s := range senders {
		v := s.verifier(t)
		h := s.sign(t, now, body)
		var wait sync.WaitGroup
		for range 8 {
			wait.Go(func() {
				if err := apply(t, pool, s.name, v, h, body); err != nil && !pawl.Retryable(err) {
					t.Errorf("%s: %v", s.name, err)
				}
			})
		}
		wait.Wait()
		if err := apply(t, pool, s.name, v, h, body); err != nil { // after the lost races above
			t.Errorf("%s: %v", s.name, err)
		}
		var effects int
		if err := pool.QueryRow(t.Context(), "select count(*) from effect").Scan(&effects); err != nil || effects != 1 {
			t.Errorf("%s: %d effects, %v", s.name, effects, err)
		}
		if _, err := pool.Exec(t.Context(), "truncate effect"); err != nil {
			t.Fatal(err)
		}
		other := strings.Replace(body, "1.10", "9.10", 1)
		if err := apply(t, pool, s.name, v, s.sign(t, now, other), other); !errors.Is(err, pawl.ErrKeyReused) {
			t.Errorf("%s: another payload under the same id: %v", s.name, err)
		}
	}
	stripe := senders[3]
	again := strings.Replace(body, `webhooks":2`, `webhooks":1`, 1)
	if err := apply(t, pool, stripe.name, stripe.verifier(t), stripe.sign(t, now, again), again); err != nil {
		t.Errorf("a retry of Stripe's with pending_webhooks counted down: %v", err)
	}
}

// apply verifies a request, claims its key, writes its row and commits.
func apply(t *testing.T, pool *pgxpool.Pool, consumer string, v *webhook.Verifier, h http.Header, body string) error {
	m, err := v.Verify(h, []byte(body))
	if err != nil {
		return err
	}
	return pgx.BeginFunc(context.WithoutCancel(t.Context()), pool, func(tx pgx.Tx) error {
		claim, err := inbox.Take(t.Context(), tx, pawl.Intent{Scope: consumer, Key: m.Key, Fingerprint: m.Fingerprint})
		if err != nil || !claim.Fresh {
			return err
		}
		_, err = tx.Exec(t.Context(), "insert into effect (key) values ($1)", m.Key)
		return err
	})
}
