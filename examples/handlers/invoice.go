package handlers

import (
	"context"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/consumer"
	"github.com/pawl-go/pawl/job"
)

// An Order is the order of an invoice.
type Order struct{ ID, Cents int64 }

// WriteInvoice writes the invoice of an order and enqueues a job that mails it; both commit
// together. Each message is applied once. The unique constraint handles a second message about the
// same order.
func WriteInvoice(ctx context.Context, tx pgx.Tx, m consumer.Message[Order]) error {
	order := m.Value
	written, err := tx.Exec(ctx, "insert into invoice (order_id, cents) values ($1, $2) on conflict (order_id) do nothing", order.ID, order.Cents)
	if err != nil || written.RowsAffected() == 0 {
		return err
	}
	_, err = job.Enqueue(ctx, tx, job.Request{Queue: "mail", Kind: "invoice", Payload: m.Payload, Key: pawl.Key("invoice", strconv.FormatInt(order.ID, 10))})
	return err
}
