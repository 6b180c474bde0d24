// Command payments charges orders at a payment provider, each once. "payments order ID CENTS"
// enqueues a charge, and "payments" works on the jobs.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/service"
	"github.com/pawl-go/pawl/step"
)

// An Order is the payload of the jobs.
type Order struct {
	ID    string `json:"id"`
	Cents int64  `json:"cents"`
}

// A Charge is the provider's response.
type Charge struct {
	ID string `json:"id"`
}

// charges are the jobs that charge an order.
var charges = job.Define("charge", job.Defaults[Order]{Queue: "payments", Key: func(o Order) string { return o.ID }})

// A provider makes charges. Its client has a step.Transport, which sends the key of the step.
type provider struct {
	pool   *pgxpool.Pool
	client *http.Client
	url    string
}

// charge calls the provider, with no transaction open. The provider remembers keys for a day, so a
// call whose response was lost is repeated with the same key.
func (p provider) charge(ctx context.Context, t job.Task[Order]) (Charge, error) {
	call := step.Step{Name: "charge", Recovery: step.Keyed(24 * time.Hour), Request: t.Value, Provider: "payments", Timeout: 20 * time.Second}
	return step.Run(ctx, p.pool, t.Job, call, func(ctx context.Context, c step.Call) (charge Charge, err error) {
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url, bytes.NewReader(t.Payload))
		if err != nil {
			return charge, step.NotSent(err)
		}
		response, err := p.client.Do(request)
		if err != nil {
			return charge, err // it may have been charged
		}
		defer func() { _ = response.Body.Close() }()
		if err := step.HTTPStatus(response.StatusCode, response.Status); err != nil {
			return charge, err
		}
		err = json.NewDecoder(response.Body).Decode(&charge)
		c.Reference(charge.ID)
		return charge, err
	})
}

// paid writes the charge, in the transaction that ends the job.
func paid(ctx context.Context, tx pgx.Tx, t job.Task[Order], c Charge) error {
	_, err := tx.Exec(ctx, "insert into payment (order_id, cents, charge) values ($1, $2, $3)", t.Value.ID, t.Value.Cents, c.ID)
	return err
}

func main() { service.Main(run) }

func run(ctx context.Context) error {
	pool, cfg, err := service.FromEnv(ctx)
	if err != nil {
		return err
	}
	if len(os.Args) > 1 {
		o, err := orderFrom(os.Args[1:])
		if err != nil {
			return err
		}
		_, err = charges.Enqueue(ctx, pool, o)
		return err
	}
	app, err := service.New(pool, cfg)
	if err != nil {
		return err
	}
	p := provider{pool, &http.Client{Transport: &step.Transport{}}, os.Getenv("PAYMENTS_URL")}
	app.Worker(job.Config{Handlers: []job.Handler{job.HandleThenTx(charges, p.charge, paid)}})
	return app.Run(ctx)
}

// orderFrom reads an order from the arguments.
func orderFrom(args []string) (Order, error) {
	if len(args) != 3 || args[0] != "order" {
		return Order{}, errors.New("usage: payments [order ID CENTS]")
	}
	cents, err := strconv.ParseInt(args[2], 10, 64)
	if err != nil {
		return Order{}, fmt.Errorf("CENTS: %w", err)
	}
	return Order{args[1], cents}, nil
}
