package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/consumer"
	"github.com/pawl-go/pawl/job"
)

// An Order is what is sent, asked for and booked.
type Order struct {
	ID    string `json:"id"`
	Cents int64  `json:"cents"`
}

// check tells an order from what can never become one.
func (o Order) check() error {
	if o.ID == "" || o.Cents <= 0 {
		return errors.New("an order has an id and cents")
	}
	return nil
}

// place writes the order and asks for its booking, in the transaction of the delivery or request, which takes effect once.
func place(ctx context.Context, tx pgx.Tx, o Order) error {
	if _, err := tx.Exec(ctx, "insert into orders (id, cents) values ($1, $2)", o.ID, o.Cents); err != nil {
		return err
	}
	_, err := job.Enqueue(ctx, tx, job.Request{Queue: "ledger", Kind: "book", Value: o})
	return err
}

// apply takes an order from the queue.
func apply(ctx context.Context, tx pgx.Tx, m consumer.Message[Order]) error {
	if err := m.Value.check(); err != nil {
		return pawl.Final(err) // no retry can help: a dead letter, with its payload
	}
	return place(ctx, tx, m.Value)
}

// create takes an order over HTTP. The answer is sent after COMMIT, and given again to whoever asks with the same key.
func create(w http.ResponseWriter, r *http.Request, tx pgx.Tx) error {
	var o Order
	err := json.NewDecoder(r.Body).Decode(&o)
	if err == nil {
		err = o.check()
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return nil
	}
	if err := place(r.Context(), tx, o); err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	return json.NewEncoder(w).Encode(o)
}

// book does the job. Its rows commit together with the job's end.
func book(ctx context.Context, tx pgx.Tx, t job.Task[Order]) error {
	_, err := tx.Exec(ctx, "insert into booking (order_id, cents) values ($1, $2)", t.Value.ID, t.Value.Cents)
	return err
}

// account names the caller. Yours comes from your authentication, never from what the caller merely says.
func account(r *http.Request) (string, error) {
	return cmp.Or(r.Header.Get("X-Account"), "anybody"), nil
}
