// Command stripe charges a card for each job of the queue "payments", once, with stripe-go. A
// declined card is a result: the job writes it into the table payment and is done.
//
//	export PAWL_DATABASE_URL=... STRIPE_KEY=sk_test_...
//	psql "$PAWL_DATABASE_URL" -f orders.sql
//	go run .
//
// Without an account, "go run . stub" charges at a stub in the process, which needs no STRIPE_KEY.
package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stripe/stripe-go/v84"

	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/step"
)

// Schema has the outcome of each payment: Stripe's name for it, or the reason of the decline.
const Schema = `
create table if not exists payment (
  order_id text primary key,
  intent   text not null,
  declined text not null
)`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	url := stripe.APIURL
	switch {
	case slices.Equal(os.Args[1:], []string{"stub"}):
		url = startStub()
	case len(os.Args) > 1:
		fmt.Fprintln(os.Stderr, "usage: stripe [stub]")
		os.Exit(2)
	}
	if err := run(ctx, os.Getenv("PAWL_DATABASE_URL"), client(os.Getenv("STRIPE_KEY"), url)); err != nil {
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
	Card  string `json:"card"` // a payment method of Stripe
}

// charges are the jobs that charge an order. One order is one job, so it has one key at Stripe.
var charges = job.Define("charge", job.Defaults[Order]{Queue: "payments", Key: func(o Order) string { return o.Order }})

// An Outcome is Stripe's answer. Declined is the reason if the card was declined.
type Outcome struct{ Intent, Declined string }

func run(ctx context.Context, database string, api *stripe.Client) error {
	pool, err := pgxpool.New(ctx, database)
	if err != nil {
		return err
	}
	defer pool.Close()
	if _, err := pool.Exec(ctx, Schema); err != nil {
		return err
	}
	w, err := job.NewWorker(pool, job.Config{Handlers: []job.Handler{job.HandleThenTx(charges, payments{pool, api}.charge, settle)}})
	if err != nil {
		return err
	}
	return w.Run(ctx)
}

type payments struct {
	pool *pgxpool.Pool
	api  *stripe.Client
}

// charge calls Stripe without an open transaction. A declined card is a value, so that settle
// writes it. Another refusal, such as a currency that the account does not have, is an error of
// this program: the job becomes a dead letter.
func (p payments) charge(ctx context.Context, t job.Task[Order]) (o Outcome, err error) {
	known, _ := step.ProviderNamed("stripe")
	keyed, _ := known.Recovery()
	call := step.Step{Name: "charge", Recovery: keyed, Request: t.Value, Provider: known.Name}
	o.Intent, err = step.Run(ctx, p.pool, t.Job, call, func(ctx context.Context, c step.Call) (string, error) {
		return create(ctx, p.api, c, t.Value)
	})
	if refusal := new(step.Refusal); errors.As(err, &refusal) && refusal.Code == string(stripe.ErrorTypeCard) {
		return Outcome{Declined: refusal.Message}, nil
	}
	return o, err
}

func create(ctx context.Context, api *stripe.Client, c step.Call, o Order) (string, error) {
	made, err := api.V1PaymentIntents.Create(ctx, &stripe.PaymentIntentCreateParams{
		Amount: stripe.Int64(o.Cents), Currency: stripe.String("eur"), Confirm: stripe.Bool(true),
		PaymentMethod: stripe.String(o.Card), Metadata: map[string]string{"order": o.Order},
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
		return step.Refused(string(e.Type), e.Msg)
	}
	return step.HTTPStatus(e.HTTPStatusCode, e.Msg)
}

// settle writes Stripe's answer. The row and the end of the job commit together.
func settle(ctx context.Context, tx pgx.Tx, t job.Task[Order], o Outcome) error {
	_, err := tx.Exec(ctx, "insert into payment (order_id, intent, declined) values ($1, $2, $3)", t.Value.Order, o.Intent, o.Declined)
	return err
}
