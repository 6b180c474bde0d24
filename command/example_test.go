package command_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/command"
	"github.com/pawl-go/pawl/internal/testbed/pgtest"
	"github.com/pawl-go/pawl/ops"
	"github.com/pawl-go/pawl/pawltest"
)

// database returns a database with the table orders, for an example.
func database() (pool *pgxpool.Pool, drop func()) {
	example := &pgtest.Example{}
	return pawltest.DB(example, orders), example.End
}

// A client that gets no reply retries with the same key and gets the answer of the first order.
func ExampleOnce() {
	ctx := context.Background()
	pool, drop := database()
	defer drop()
	body := []byte(`{"customer": "ann", "cents": 1250}`)
	ask := func(key string, body []byte) {
		intent := pawl.Intent{Scope: "orders/acme", Key: key, Fingerprint: pawl.FingerprintOf(body)}
		result, err := command.Once(ctx, pool, intent, command.Options{Hooks: silent}, func(ctx context.Context, tx pgx.Tx) (o order, err error) {
			o.Body = string(body)
			return o, tx.QueryRow(ctx, "insert into orders (body) values ($1) returning id", body).Scan(&o.ID)
		})
		fmt.Println(result.Value.ID, result.Replayed, errors.Is(err, pawl.ErrKeyReused))
	}

	ask("key-1", body)
	ask("key-1", body)
	ask("key-1", []byte(`{"customer": "ann", "cents": 9999}`))
	// Output:
	// 1 false false
	// 1 true false
	// 0 false true
}

// An attempt with unknown outcome does not run again until you settle the command.
func ExampleLeased() {
	ctx := context.Background()
	pool, drop := database()
	defer drop()
	intent := pawl.Intent{Scope: "charges", Key: "order-17", Fingerprint: pawl.FingerprintOf([]byte("1250"))}
	charge := func(answer error) {
		result, err := command.Leased(ctx, pool, intent, command.LeaseOptions{Hooks: silent}, func(ctx context.Context, a *command.Attempt[string]) error {
			if answer != nil { // the provider's
				return command.Unknown(answer)
			}
			return a.Commit(ctx, func(ctx context.Context, tx pgx.Tx) (string, error) { return "receipt 1", nil })
		})
		fmt.Printf("%q, replayed %v, unknown %v\n", result.Value, result.Replayed, errors.Is(err, pawl.ErrOutcomeUnknown))
	}

	charge(errors.New("timeout"))
	charge(nil)
	id := ops.CommandRef{Scope: "charges", Key: "order-17"}
	seen, _ := id.Get(ctx, pool) // then ann asks the provider
	settled, err := seen.Ref().Settle(ctx, pool, ops.CommandVerdict{Executed: false}, ops.By{Actor: "ann", Reason: "the provider has no such charge"})
	fmt.Println(settled.Outcome, err)
	charge(nil)
	charge(nil)
	// Output:
	// "", replayed false, unknown true
	// "", replayed false, unknown true
	// settled <nil>
	// "receipt 1", replayed false, unknown false
	// "receipt 1", replayed true, unknown false
}

var silent = pawl.Hooks{OnEvent: func(context.Context, pawl.Event) {}}
