// Package shop is a small application for the guide on testing. It takes orders, charges each in a
// job, and publishes an event. The guide shows its tests.
package shop

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/command/httpkey"
	"github.com/pawl-go/pawl/consumer"
	"github.com/pawl-go/pawl/guard"
	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/outbox"
	"github.com/pawl-go/pawl/step"
)

// Schema has the table of the shop.
const Schema = "create table orders (id text not null, cents bigint not null, packed boolean not null default false)"

// An Order is an order of a customer.
type Order struct {
	ID    string `json:"id"`
	Cents int64  `json:"cents"`
}

// Place writes an order, and enqueues its charge and its event.
func Place(ctx context.Context, tx pgx.Tx, o Order) error {
	if _, err := tx.Exec(ctx, "insert into orders (id, cents) values ($1, $2)", o.ID, o.Cents); err != nil {
		return err
	}
	if _, err := job.Enqueue(ctx, tx, job.Request{Queue: "payments", Kind: "charge", Value: o}); err != nil {
		return err
	}
	_, err := outbox.Append(ctx, tx, outbox.Event{Type: "OrderPlaced", AggregateType: "order", AggregateID: o.ID, Value: o})
	return err
}

// Receive is the handler of the queue of orders.
func Receive(ctx context.Context, tx pgx.Tx, m consumer.Message[Order]) error {
	return Place(ctx, tx, m.Value)
}

// Pack marks an order as packed, and enqueues its parcel. It may be called any number of times.
func Pack(ctx context.Context, pool *pgxpool.Pool, id string) error {
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, "update orders set packed = true where id = $1 and not packed", id)
		if err != nil || tag.RowsAffected() == 0 {
			return err
		}
		_, err = job.Enqueue(ctx, tx, job.Request{Queue: "parcels", Kind: "send", Value: id})
		return err
	})
}

// Orders answers POST /orders: one order for each Idempotency-Key, and the same response to every
// retry.
func Orders(pool *pgxpool.Pool) http.Handler {
	// a real shop takes it from the login
	tenant := func(*http.Request) (string, error) { return "shop", nil }
	return httpkey.Once(pool, tenant, httpkey.Options{}, func(w http.ResponseWriter, r *http.Request, tx pgx.Tx) error {
		var o Order
		if err := json.NewDecoder(r.Body).Decode(&o); err != nil {
			return pawl.Final(err)
		}
		if err := Place(r.Context(), tx, o); err != nil {
			return err
		}
		w.WriteHeader(http.StatusCreated)
		return json.NewEncoder(w).Encode(o)
	})
}

// Payments configures the worker that charges orders at a provider.
func Payments(provider string) job.Config {
	return job.Config{Queues: []job.Queue{{Name: "payments"}}, Handlers: []job.Handler{Charge(provider)}}
}

// Charge charges an order. The provider ignores a second request with the same key.
func Charge(provider string) job.Handler {
	return job.Handle("charge", func(ctx context.Context, t job.Task[Order]) error {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, provider+"/charges", bytes.NewReader(t.Payload))
		if err != nil {
			return err
		}
		r.Header.Set("Idempotency-Key", "order-"+t.Value.ID)
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			return err
		}
		_ = response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("the provider answered %s", response.Status)
		}
		return nil
	})
}

// Parcels has the table of the parcels, whose rows have a status.
const Parcels = `create table parcels (id text primary key, label text, status text not null default 'pending', created_at timestamptz not null default now(),
  claimed_at timestamptz, completed_at timestamptz, last_error text, attempt_count int not null default 0)`

// Ship returns the function that ships a parcel: a message names it, or the sweeper retries it. The
// carrier prints a label in a step, and the label's number completes the row.
func Ship(pool *pgxpool.Pool, rows *guard.Rows, carrier string) func(ctx context.Context, id string) error {
	client := &http.Client{Transport: &step.Transport{}}
	return func(ctx context.Context, id string) error {
		parcel, err := rows.Claim(ctx, id)
		if err != nil {
			return err
		}
		label, err := step.Run(ctx, pool, parcel, step.Step{Name: "label", Recovery: step.Keyed(time.Hour), Request: id, Provider: "carrier"},
			func(ctx context.Context, _ step.Call) (string, error) { return post(ctx, client, carrier, id) })
		if err != nil {
			return parcel.Fail(ctx, err)
		}
		return parcel.Commit(ctx, func(context.Context, pgx.Tx) (any, error) { return label, nil })
	}
}

// post asks the carrier for a label and returns its number.
func post(ctx context.Context, client *http.Client, carrier, parcel string) (string, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, carrier+"/charges", strings.NewReader(parcel))
	if err != nil {
		return "", err
	}
	response, err := client.Do(r)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	if err := step.HTTPStatus(response.StatusCode, response.Status); err != nil {
		return "", err
	}
	var label struct{ ID string }
	err = json.NewDecoder(response.Body).Decode(&label)
	return label.ID, err
}
