// Package guard does the work of a row once. Use it if the work is a row of your own table that has
// a status column, and a message or a request only names the row. Map the table, and pass the id
// and the work:
//
//	orders, err := guard.New(pool, guard.Table{Name: "orders"})
//
//	err = orders.Once(ctx, 17, func(ctx context.Context, tx pgx.Tx) (any, error) {
//		_, err := tx.Exec(ctx, "insert into shipment (order_id) values ($1)", 17)
//		return nil, err
//	})
//	if err == nil || errors.Is(err, pawl.ErrAlreadyHandled) || errors.Is(err, pawl.ErrFailureRecorded) {
//		return nil // acknowledge: the row has the outcome
//	}
//	return err
//
// Use [Rows.Once] for work of up to 30 s that calls no other system. Use [Rows.Claim] for longer
// work: it commits the claim first. A [Sweeper] retries rows that failed, whose process died, or
// whose message was lost. See docs/guides/choose.md. For work without a row, use package lock.
//
//	pending ──── Once: your work and completed, in one transaction ────▶ completed
//	   │                                                          ▲
//	   └── Claim ──▶ processing ── Commit: your work, one transaction ┘
//	                    │
//	                    └── Fail, or a Sweeper ──▶ error, or pending again
package guard
