package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/internal/testbed/checker"
)

type order struct {
	ID       string `json:"order_id"`
	Customer string `json:"customer"`
	Cents    int64  `json:"cents"`
	Poison   bool   `json:"poison,omitempty"`
}

// makeOrders invents the orders. Poison ones are marked by their customer.
func makeOrders(random *rand.Rand, n, poison int) []checker.Order {
	orders := make([]checker.Order, n)
	for i := range orders {
		orders[i] = checker.Order{Key: fmt.Sprintf("order-%06d", i), Customer: fmt.Sprintf("customer-%03d", random.IntN(200)), Cents: 100 + random.Int64N(100_000)}
	}
	for _, i := range random.Perm(n)[:poison] {
		orders[i].Customer = poisonCustomer
	}
	return orders
}

const poisonCustomer = "nobody"

func bodyOf(o checker.Order) []byte {
	body, err := json.Marshal(order{o.Key, o.Customer, o.Cents, o.Customer == poisonCustomer})
	if err != nil {
		panic(err) // strings and numbers cannot fail
	}
	return body
}

func orderOf(body []byte) (order, error) {
	var o order
	err := json.Unmarshal(body, &o)
	return o, err
}

// The business tables have no unique constraint on the key, so that a second effect shows.
const tables = `
create schema SCHEMA;
create table SCHEMA.orders (id bigint generated always as identity primary key, key pg_catalog.text not null, customer pg_catalog.text not null, cents bigint not null);
create table SCHEMA.ledger (id bigint generated always as identity primary key, key pg_catalog.text not null, cents bigint not null);
create table SCHEMA.balance (customer pg_catalog.text primary key, cents bigint not null);
create table SCHEMA.shipments (id bigint generated always as identity primary key, key pg_catalog.text not null, customer pg_catalog.text not null, cents bigint not null);
create table SCHEMA.letters (id bigint generated always as identity primary key, key pg_catalog.text not null);`

func inSchema(text, schema string) string {
	return strings.ReplaceAll(text, "SCHEMA", pgx.Identifier{schema}.Sanitize())
}

// apply is the demo's handler: the writes of a business, without any care for duplicates.
func apply(ctx context.Context, tx pgx.Tx, schema string, o order) error {
	for _, write := range []struct {
		sql  string
		args []any
	}{
		{"insert into SCHEMA.orders (key, customer, cents) values ($1, $2, $3)", []any{o.ID, o.Customer, o.Cents}},
		{"insert into SCHEMA.ledger (key, cents) values ($1, $2)", []any{o.ID, o.Cents}},
		{"insert into SCHEMA.balance as b values ($1, $2) on conflict (customer) do update set cents = b.cents operator(pg_catalog.+) excluded.cents", []any{o.Customer, o.Cents}},
	} {
		if _, err := tx.Exec(ctx, inSchema(write.sql, schema), write.args...); err != nil {
			return err
		}
	}
	return nil
}
