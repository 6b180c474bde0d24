package recipes

import (
	"context"
	"database/sql"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/pawl-go/pawl"
)

// A BunOrder is a row, for bun.
type BunOrder struct {
	bun.BaseModel `bun:"table:recipe_order"`
	ID            string
	Cents         int64
}

// OpenBun opens bun on a handle that shares Pawl's pool.
func OpenBun(db *sql.DB) *bun.DB { return bun.NewDB(db, pgdialect.New()) }

// InsertBun writes an order with bun. Conn runs one query on the transaction.
func InsertBun(db *bun.DB) func(context.Context, *sql.Tx, Order) error {
	return func(ctx context.Context, tx *sql.Tx, o Order) error {
		_, err := db.NewInsert().Conn(tx).Model(&BunOrder{ID: o.ID, Cents: o.Cents}).Exec(ctx)
		return err
	}
}

// PlaceWithBun runs in a transaction that bun begins. Pawl gets the *sql.Tx inside bun.Tx, because
// bun.Tx interprets ? in statements as its own placeholder.
func PlaceWithBun(ctx context.Context, db *bun.DB, o Order) error {
	return db.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
		if _, err := tx.NewInsert().Model(&BunOrder{ID: o.ID, Cents: o.Cents}).Exec(ctx); err != nil {
			return err
		}
		_, err := Ship.Enqueue(ctx, pawl.SQL(tx.Tx), o)
		return err
	})
}
