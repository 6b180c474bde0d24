// Command stripe charges a card for each job of the queue "payments", once, with stripe-go.
//
//	export PAWL_DATABASE_URL=... STRIPE_KEY=sk_test_...
//	psql "$PAWL_DATABASE_URL" -c "select pawl_v1.job_enqueue('payments', 'charge', '{\"order\": \"order-17\", \"cents\": 1250}')"
//	go run .
package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/signal"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stripe/stripe-go/v84"

	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/step"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Getenv("PAWL_DATABASE_URL"), client(os.Getenv("STRIPE_KEY"), stripe.APIURL)); err != nil {
		fmt.Fprintln(os.Stderr, "stripe:", err)
		os.Exit(1)
	}
}

// client is stripe-go with a step.Transport. stripe-go sets a new Idempotency-Key for each call of
// its methods; the transport replaces it by the step's key. Retries of stripe-go are off, because
// the job retries.
func client(key, url string) *stripe.Client {
	return stripe.NewClient(key, stripe.WithBackends(stripe.NewBackendsWithConfig(&stripe.BackendConfig{
		URL:               stripe.String(url),
		HTTPClient:        &http.Client{Transport: &step.Transport{}},
		MaxNetworkRetries: stripe.Int64(0),
		LeveledLogger:     &stripe.LeveledLogger{Level: stripe.LevelNull},
	})))
}

// An Order is the payload of a job.
type Order struct {
	Order string `json:"order"`
	Cents int64  `json:"cents"`
}

func run(ctx context.Context, database string, api *stripe.Client) error {
	pool, err := pgxpool.New(ctx, database)
	if err != nil {
		return err
	}
	defer pool.Close()
	known, _ := step.ProviderNamed("stripe")
	keyed, _ := known.Recovery()
	w, err := job.NewWorker(pool, job.Config{
		Queues: []job.Queue{{Name: "payments"}},
		Handlers: []job.Handler{job.Handle("charge", func(ctx context.Context, t job.Task[Order]) error {
			payment := step.Step{Name: "charge", Recovery: keyed, Request: t.Value, Provider: known.Name}
			id, err := step.Run(ctx, pool, t.Job, payment, func(ctx context.Context, c step.Call) (string, error) {
				return charge(ctx, api, c, t.Value)
			})
			if err == nil {
				fmt.Println(t.Value.Order, "is paid:", id)
			}
			return err
		})},
	})
	if err != nil {
		return err
	}
	return w.Run(ctx)
}

func charge(ctx context.Context, api *stripe.Client, c step.Call, o Order) (string, error) {
	made, err := api.V1PaymentIntents.Create(ctx, &stripe.PaymentIntentCreateParams{
		Amount: stripe.Int64(o.Cents), Currency: stripe.String("eur"), Confirm: stripe.Bool(true),
		PaymentMethod: stripe.String("pm_card_visa"), Metadata: map[string]string{"order": o.Order},
	})
	if err != nil {
		return "", meaning(err)
	}
	c.Reference(made.ID)
	return made.ID, nil
}

// meaning classifies Stripe's errors. A card error is the response to the key; a status alone says
// nothing about an earlier call.
func meaning(err error) error {
	var e *stripe.Error
	if !errors.As(err, &e) {
		return err
	}
	if e.Type == stripe.ErrorTypeCard {
		return step.Refused(string(e.Code), e.Msg)
	}
	return step.HTTPStatus(e.HTTPStatusCode, e.Msg)
}
