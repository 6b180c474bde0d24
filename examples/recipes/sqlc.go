package recipes

import (
	"context"
	"database/sql"

	"github.com/pawl-go/pawl/examples/recipes/sqlcorders"
)

// InsertSqlc writes an order with the queries that sqlc generated for database/sql. For pgx,
// generate them with sql_package: pgx/v5 and use the handlers that get a pgx.Tx.
func InsertSqlc(ctx context.Context, tx *sql.Tx, o Order) error {
	return sqlcorders.New(tx).InsertOrder(ctx, sqlcorders.InsertOrderParams{ID: o.ID, Cents: o.Cents})
}
