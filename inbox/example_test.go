package inbox_test

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/internal/testbed/pgtest"
	"github.com/pawl-go/pawl/pawltest"
)

// A handler of another library opens its own transaction. Each delivery takes effect once.
func ExampleTake() {
	ctx := context.Background()
	e := &pgtest.Example{}
	defer e.End()
	pool := pawltest.DB(e, "create table payment (order_id text, cents int)")
	receive := func(key string, payload []byte) (fresh bool, err error) {
		err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			claim, err := inbox.Take(ctx, tx, pawl.Intent{Scope: "payments", Key: key, Fingerprint: pawl.FingerprintOf(payload)})
			if err != nil || !claim.Fresh {
				return err
			}
			fresh = true
			_, err = tx.Exec(ctx, "insert into payment values ($1, 1250)", key)
			return err
		})
		return fresh, err // if nil, acknowledge the message
	}

	fmt.Println(receive("order-17", []byte("1250 cents")))
	fmt.Println(receive("order-17", []byte("1250 cents")))
	var payments int
	fmt.Println(pool.QueryRow(ctx, "select count(*) from payment").Scan(&payments), payments)
	// Output:
	// true <nil>
	// false <nil>
	// <nil> 1
}

// A reconciler asks which of the sender's keys never arrived.
func ExampleMissing() {
	ctx := context.Background()
	e := &pgtest.Example{}
	defer e.End()
	pool := pawltest.DB(e)
	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		_, err := inbox.Take(ctx, tx, pawl.Intent{Scope: "payments", Key: "order-1", Fingerprint: pawl.FingerprintOf(nil)})
		return err
	})
	fmt.Println(err)
	fmt.Println(inbox.Missing(ctx, pool, "payments", []string{"order-1", "order-2"}))
	// Output:
	// <nil>
	// [order-2] <nil>
}
