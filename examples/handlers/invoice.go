package handlers

import (
	"context"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/consumer"
	"github.com/pawl-go/pawl/job"
)

// An Order is what an invoice is written for.
type Order struct{ ID, Cents int64 }

// WriteInvoice writes the invoice of an order and has it mailed. The message is applied once; the constraint is for another message
// about the same order. The mail is a job that commits with the invoice, or not at all.
func WriteInvoice(ctx context.Context, tx pgx.Tx, m consumer.Message[Order]) error {
	order := m.Value
	written, err := tx.Exec(ctx, "insert into invoice (order_id, cents) values ($1, $2) on conflict (order_id) do nothing", order.ID, order.Cents)
	if err != nil || written.RowsAffected() == 0 {
		return err
	}
	_, err = job.Enqueue(ctx, tx, job.Request{Queue: "mail", Kind: "invoice", Payload: m.Payload, Key: pawl.Key("invoice", strconv.FormatInt(order.ID, 10))})
	return err
}
