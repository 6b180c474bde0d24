package pawltest_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/consumer"
	"github.com/pawl-go/pawl/pawltest"
	"github.com/pawl-go/pawl/transport/webhook"
)

var schemes = map[string]struct {
	scheme webhook.Scheme
	id     string
}{
	"standard": {webhook.StandardWebhooks(webhook.Secret{Value: "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}), "msg_1"},
	"svix":     {webhook.Svix(webhook.Secret{Value: "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}), "msg_1"},
	"stripe":   {webhook.Stripe(webhook.Secret{Value: "whsec_q3Rt5vXy8Zb2Nd4Gh6Jk"}), ""},
	"mux":      {webhook.Mux(webhook.Secret{Value: "whsec_q3Rt5vXy8Zb2Nd4Gh6Jk"}), ""},
	"github":   {webhook.GitHub(webhook.Secret{Value: "q3Rt5vXy8Zb2Nd4Gh6Jk"}), "72d3162e-cc78-11e3-81ab-4c9367dc0958"},
	"slack":    {webhook.Slack(webhook.Secret{Value: "q3Rt5vXy8Zb2Nd4Gh6Jk"}), ""},
	"shopify":  {webhook.Shopify(webhook.Secret{Value: "q3Rt5vXy8Zb2Nd4Gh6Jk"}), "b54557e4-bdd9-4b37"},
}

func receiver(t *testing.T, scheme webhook.Scheme) *webhook.Receiver {
	t.Helper()
	verifier, err := webhook.New(webhook.Config{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	r, err := webhook.NewReceiver(verifier, webhook.ReceiverConfig{})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// A request that a test signs is accepted under every scheme. It takes effect once however often it
// comes, also if the handler's first attempt fails. A signature with another secret is refused.
func TestServeWebhooks(t *testing.T) {
	t.Parallel()
	for name, s := range schemes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := pawltest.DB(t, "create table paid (id text not null)")
			tries := 0
			cfg := consumer.Config{Name: "hooks", Source: receiver(t, s.scheme), Handler: consumer.HandleTx(
				func(ctx context.Context, tx pgx.Tx, m consumer.Message[struct{ ID string }]) error {
					if tries++; tries == 1 {
						return errors.New("not now")
					}
					_, err := tx.Exec(ctx, "insert into paid values ($1)", m.Value.ID)
					return err
				})}
			body := []byte(`{"id":"evt_1","event_id":"Ev1","type":"invoice.paid"}`)
			sign := func() *http.Request { return pawltest.SignWebhook(t, s.scheme, "/hooks", s.id, body) }
			forged := sign()
			for _, header := range []string{"Webhook-Signature", "Svix-Signature", "Stripe-Signature", "Mux-Signature", "X-Hub-Signature-256", "X-Slack-Signature", "X-Shopify-Hmac-Sha256"} {
				if value := forged.Header.Get(header); value != "" {
					other := pawltest.SignWebhook(t, s.scheme, "/hooks", s.id, []byte(`{"id":"evt_2","event_id":"Ev2"}`))
					forged.Header.Set(header, other.Header.Get(header))
				}
			}
			var statuses []int
			for _, response := range pawltest.ServeWebhooks(t, pool, cfg, sign(), sign(), forged, sign()) {
				statuses = append(statuses, response.StatusCode)
			}
			if got := fmt.Sprint(statuses); got != "[200 200 401 200]" && got != "[200 200 400 200]" {
				t.Errorf("answered %s", got)
			}
			if n := count(t, pool, "select count(*) from paid where id = 'evt_1'"); n != 1 {
				t.Errorf("took effect %d times", n)
			}
		})
	}
}
