package recipes

import (
	"context"
	"database/sql"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"

	"github.com/pawl-go/pawl/examples/recipes/ent"
)

//go:generate go run -mod=mod entgo.io/ent/cmd/ent generate ./ent/schema

// EntOn returns ent's client on one transaction.
func EntOn(tx *sql.Tx) *ent.Client {
	return ent.NewClient(ent.Driver(onTx{entsql.NewDriver(dialect.Postgres, entsql.Conn{ExecQuerier: tx})}))
}

// onTx is ent's driver on an open transaction. Operations for which ent begins a transaction, such
// as edges, run in it.
type onTx struct{ dialect.Driver }

// Tx begins no transaction.
func (d onTx) Tx(context.Context) (dialect.Tx, error) { return dialect.NopTx(d), nil }

// InsertEnt writes an order with ent.
func InsertEnt(ctx context.Context, tx *sql.Tx, o Order) error {
	return EntOn(tx).Order.Create().SetID(o.ID).SetCents(o.Cents).Exec(ctx)
}
