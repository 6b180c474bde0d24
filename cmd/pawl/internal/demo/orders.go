package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/internal/checker"
	"github.com/pawl-go/pawl/migrate"
)

// order is the message body.
type order struct {
	ID       string `json:"order_id"`
	Customer string `json:"customer"`
	Cents    int64  `json:"cents"`
	Poison   bool   `json:"poison,omitempty"`
}

// makeOrders invents the intents. Poison ones are marked by their customer.
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
		panic(err) // strings and numbers
	}
	return body
}

func orderOf(body []byte) (order, error) {
	var o order
	err := json.Unmarshal(body, &o)
	return o, err
}

// The business tables have no unique constraint on the key: if anything doubled, it would show.
const tables = `
create schema SCHEMA;
create table SCHEMA.orders (id bigint generated always as identity primary key, key text not null, customer text not null, cents bigint not null);
create table SCHEMA.ledger (id bigint generated always as identity primary key, key text not null, cents bigint not null);
create table SCHEMA.balance (customer text primary key, cents bigint not null);`

// prepare connects the observer and creates what the run needs. In a private database that includes Pawl's schema; in
// somebody else's it is only checked, because migrations run only when asked.
func (r *run) prepare(ctx context.Context, url string) (err error) {
	if r.database, err = pgx.Connect(ctx, url); err != nil {
		return err
	}
	if r.DatabaseURL == "" {
		_, err = migrate.Up(ctx, r.database, nil)
	} else {
		err = migrate.Check(ctx, r.database)
	}
	if err == nil {
		_, err = r.database.Exec(ctx, r.sql(tables))
	}
	if err != nil {
		return errors.Join(err, r.database.Close(ctx))
	}
	return nil
}

func (r *run) sql(text string) string { return inSchema(text, r.schema) }

func inSchema(text, schema string) string {
	return strings.ReplaceAll(text, "SCHEMA", pgx.Identifier{schema}.Sanitize())
}

// apply is the demo's handler: what a business would write, without a thought for duplicates.
func apply(ctx context.Context, tx pgx.Tx, schema string, o order) error {
	for _, write := range []struct {
		sql  string
		args []any
	}{
		{"insert into SCHEMA.orders (key, customer, cents) values ($1, $2, $3)", []any{o.ID, o.Customer, o.Cents}},
		{"insert into SCHEMA.ledger (key, cents) values ($1, $2)", []any{o.ID, o.Cents}},
		{"insert into SCHEMA.balance as b values ($1, $2) on conflict (customer) do update set cents = b.cents + excluded.cents", []any{o.Customer, o.Cents}},
	} {
		if _, err := tx.Exec(ctx, inSchema(write.sql, schema), write.args...); err != nil {
			return err
		}
	}
	return nil
}

// history reads the rows a business would look at, and the dead letters, with plain SQL.
func (r *run) history(ctx context.Context) (checker.History, error) {
	h := checker.History{Sent: r.sent, Balances: map[string]int64{}, DeadLetters: map[string]checker.Order{}}
	rows, _ := r.database.Query(ctx, r.sql("select o.key, o.customer, o.cents from SCHEMA.orders as o order by o.id"))
	var err error
	if h.Orders, err = pgx.CollectRows(rows, pgx.RowToStructByPos[checker.Order]); err != nil {
		return h, err
	}
	rows, _ = r.database.Query(ctx, r.sql("select l.key, l.cents from SCHEMA.ledger as l order by l.id"))
	if h.Ledger, err = pgx.CollectRows(rows, pgx.RowToStructByPos[checker.LedgerEntry]); err != nil {
		return h, err
	}
	var customer string
	var cents int64
	rows, _ = r.database.Query(ctx, r.sql("select b.customer, b.cents from SCHEMA.balance as b"))
	_, err = pgx.ForEachRow(rows, []any{&customer, &cents}, func() error {
		h.Balances[customer] = cents
		return nil
	})
	if err != nil {
		return h, err
	}
	var body []byte
	rows, _ = r.database.Query(ctx, "select d.args from pawl_v1.dead_letters as d where d.queue = $1", "inbox/"+r.schema)
	_, err = pgx.ForEachRow(rows, []any{&body}, func() error {
		o, err := orderOf(body)
		h.DeadLetters[o.ID] = checker.Order{Key: o.ID, Customer: o.Customer, Cents: o.Cents}
		return err
	})
	return h, err
}

// removeTraces leaves somebody else's database as it was.
func (r *run) removeTraces(ctx context.Context) {
	_, err := r.database.Exec(ctx, r.sql("drop schema SCHEMA cascade"))
	if err == nil {
		_, err = r.database.Exec(ctx, "delete from pawl.inbox as i where i.consumer = $1", r.schema)
	}
	if err == nil {
		_, err = r.database.Exec(ctx, "delete from pawl.job as j where j.queue = $1", "inbox/"+r.schema)
	}
	if err != nil {
		r.display.Note(fmt.Sprintf("could not remove schema %s and its inbox rows: %v", r.schema, err))
	}
}
