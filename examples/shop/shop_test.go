package shop_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/command"
	"github.com/pawl-go/pawl/consumer"
	"github.com/pawl-go/pawl/examples/shop"
	"github.com/pawl-go/pawl/guard"
	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/outbox"
	"github.com/pawl-go/pawl/pawltest"
	"github.com/pawl-go/pawl/transport/webhook"
)

func TestPlace_ChargesAndTells(t *testing.T) {
	pool := pawltest.DB(t, shop.Schema)
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	if err := shop.Place(t.Context(), tx, shop.Order{ID: "17", Cents: 1250}); err != nil {
		t.Fatal(err)
	}
	charge := pawltest.Enqueued[shop.Order](t, tx, "charge", 1)[0]
	if charge.Queue != "payments" || charge.Value.Cents != 1250 {
		t.Errorf("enqueued %+v", charge)
	}
	if placed := pawltest.Appended[shop.Order](t, tx, "OrderPlaced", 1)[0]; placed.AggregateID != "17" {
		t.Errorf("appended %+v", placed)
	}
}

func TestCharge_OnceThoughTheProviderIsSilent(t *testing.T) {
	pool := pawltest.DB(t, shop.Schema)
	provider := pawltest.NewProvider(t, time.Hour, func(n int, _ *http.Request) pawltest.Lie {
		if n == 0 {
			return pawltest.CutAfter // charged, and no answer
		}
		return ""
	})
	place(t, pool, shop.Order{ID: "17", Cents: 1250})

	drained := pawltest.Drain(t, pool, shop.Payments(provider.URL))
	if len(drained.Done) != 1 || len(drained.Retried) != 1 || len(drained.Dead) != 0 {
		t.Errorf("drained: %v", drained)
	}
	if n := len(provider.Charges()); n != 1 {
		t.Errorf("charged %d times", n)
	}
}

func TestCharge_WaitsAfterAFailure(t *testing.T) {
	pool := pawltest.DB(t, shop.Schema)
	provider := pawltest.NewProvider(t, time.Hour, func(int, *http.Request) pawltest.Lie { return pawltest.FailBefore })
	place(t, pool, shop.Order{ID: "17", Cents: 1250})

	drained := pawltest.DrainOnce(t, pool, shop.Payments(provider.URL))
	if len(drained.Retried) != 1 || len(drained.Left) != 1 {
		t.Errorf("drained: %v", drained)
	}
	if charge := pawltest.Enqueued[shop.Order](t, pool, "charge", 1)[0]; charge.Attempts != 1 || charge.LastError == "" {
		t.Errorf("it waits as %+v", charge)
	}
}

func TestReceive_OnceHoweverOftenItComes(t *testing.T) {
	pool := pawltest.DB(t, shop.Schema)
	source := &pawltest.Source{}
	order := pawl.Delivery{Key: "order-17", Payload: []byte(`{"id":"17","cents":1250}`)}
	source.Send(order, order, pawl.Delivery{Key: "order-18", Payload: []byte(`not JSON`)}, order)

	n := pawltest.Consume(t, pool, consumer.Config{Name: "orders", Source: source, Handler: consumer.HandleTx(shop.Receive)})
	if n.Count(pawl.EventSucceeded) != 1 || n.Count(pawl.EventDuplicateSkipped) != 2 || n.Count(pawl.EventFailed) != 1 {
		t.Errorf("%d succeeded, %d duplicates, %d dead letters", n.Count(pawl.EventSucceeded), n.Count(pawl.EventDuplicateSkipped), n.Count(pawl.EventFailed))
	}
	pawltest.Enqueued[shop.Order](t, pool, "charge", 1)
	if seen := pawltest.Seen(t, pool, "orders", "order-17"); seen.ProcessedAt.IsZero() {
		t.Errorf("seen %+v", seen)
	}
}

func TestPlace_IsPublished(t *testing.T) {
	pool := pawltest.DB(t, shop.Schema)
	place(t, pool, shop.Order{ID: "17", Cents: 1250})

	relayed := pawltest.DrainRelay(t, pool, outbox.Config{Sink: outbox.Func(func(context.Context, pawl.Message) error { return nil })})
	if len(relayed.Published) != 1 || relayed.Published[0].Type != "OrderPlaced" || len(relayed.Left) != 0 {
		t.Errorf("relayed %+v", relayed)
	}
}

func TestReceive_SignedWebhooks(t *testing.T) {
	pool := pawltest.DB(t, shop.Schema)
	scheme := webhook.GitHub(webhook.Secret{Value: "for this test only"})
	verifier, err := webhook.New(webhook.Config{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	receiver, err := webhook.NewReceiver(verifier, webhook.ReceiverConfig{})
	if err != nil {
		t.Fatal(err)
	}
	send := func() *http.Request {
		return pawltest.SignWebhook(t, scheme, "/orders", "delivery-1", []byte(`{"id":"17","cents":1250}`))
	}
	cfg := consumer.Config{Name: "orders", Source: receiver, Handler: consumer.HandleTx(shop.Receive)}
	for _, response := range pawltest.ServeWebhooks(t, pool, cfg, send(), send(), send()) {
		if response.StatusCode != http.StatusOK {
			t.Errorf("answered %s", response.Status)
		}
	}
	pawltest.Enqueued[shop.Order](t, pool, "charge", 1)
}

func TestReceive_BearsCrashes(t *testing.T) {
	p := pawltest.HandlerTest{Schema: []string{shop.Schema}, Handler: consumer.HandleTx(shop.Receive),
		Delivery: pawl.Delivery{Key: "order-17", Payload: []byte(`{"id":"17","cents":1250}`)}}
	pawltest.Twice(t, p)
	pawltest.CrashEverywhere(t, p)
}

func TestCharge_BearsCrashes(t *testing.T) {
	provider := pawltest.NewProvider(t, time.Hour, nil)
	pawltest.CrashEverywhere(t, pawltest.JobTest{
		Handler: shop.Charge(provider.URL),
		Jobs:    []job.Request{{Value: shop.Order{ID: "17", Cents: 1250}}},
		Check: func(tb testing.TB, _ *pgxpool.Pool) {
			if n := len(provider.Charges()); n != 1 {
				tb.Errorf("%d charges", n)
			}
		},
	})
}

func TestShip_BearsCrashes(t *testing.T) {
	carrier := pawltest.NewProvider(t, time.Hour, nil)
	p := pawltest.TriggerTest{
		Schema: []string{shop.Parcels, "insert into parcels values ('17')"},
		Table:  guard.Table{Name: "parcels", Result: "label", CreatedAt: "created_at"}, ID: "17",
		Make: func(pool *pgxpool.Pool, rows *guard.Rows) func(context.Context, string) error {
			return shop.Ship(pool, rows, carrier.URL)
		},
		Ignore: []string{"parcels.label"}, // its number
		Check: func(tb testing.TB, _ *pgxpool.Pool) {
			if n := len(carrier.Charges()); n != 1 { // each database sends the same key
				tb.Errorf("%d labels", n)
			}
		},
	}
	pawltest.Twice(t, p)
	pawltest.CrashEverywhere(t, p)
}

func TestOrders_BearCrashes(t *testing.T) {
	p := pawltest.RequestTest{Schema: []string{shop.Schema}, Make: shop.Orders, Request: func() *http.Request {
		return httptest.NewRequest(http.MethodPost, "/orders", strings.NewReader(`{"id":"17","cents":1250}`))
	}}
	pawltest.Twice(t, p)
	pawltest.CrashEverywhere(t, p)
}

func TestPlace_IsRemembered(t *testing.T) {
	pool := pawltest.DB(t, shop.Schema)
	place(t, pool, shop.Order{ID: "17", Cents: 1250})
	if c := pawltest.Command(t, pool, "shop", "order-17"); c.Attempts != 1 {
		t.Errorf("the command: %+v", c)
	}
}

func TestPack_TwiceAtOnce(t *testing.T) {
	p := pawltest.WorkTest{
		Schema: []string{shop.Schema, "insert into orders (id, cents) values ('17', 1250)"},
		Make: func(pool *pgxpool.Pool) func(context.Context) error {
			return func(ctx context.Context) error { return shop.Pack(ctx, pool, "17") }
		},
	}
	pawltest.Twice(t, p)
	pawltest.CrashEverywhere(t, p)
}

// place places an order as the HTTP handler does: once for each key.
func place(t *testing.T, pool *pgxpool.Pool, o shop.Order) {
	t.Helper()
	intent := pawl.Intent{Scope: "shop", Key: "order-" + o.ID, Fingerprint: pawl.FingerprintOf([]byte(o.ID))}
	_, err := command.Once(t.Context(), pool, intent, command.Options{}, func(ctx context.Context, tx pgx.Tx) (string, error) {
		return o.ID, shop.Place(ctx, tx, o)
	})
	if err != nil {
		t.Fatal(err)
	}
}
