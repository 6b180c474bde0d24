package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/testbed/pgtest"
	"github.com/pawl-go/pawl/outbox"
	"github.com/pawl-go/pawl/pawltest"
)

type order struct {
	ID    string `json:"id"`
	Cents int    `json:"cents"`
}

// An event is appended in the order's transaction and published after that commits. Appending it
// again under the same key has no effect. A transaction that rolls back publishes nothing.
func Example() {
	ctx, pool, end := example("create table orders (id text, cents int)")
	defer end()
	place := func(o order, fail error) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "insert into orders values ($1, $2)", o.ID, o.Cents); err != nil {
				return err
			}
			_, err := outbox.Append(ctx, tx, outbox.Event{Type: "OrderPlaced", AggregateType: "order", AggregateID: o.ID,
				Scope: "orders", Key: "place-" + o.ID, Value: o})
			return errors.Join(err, fail)
		})
	}
	fmt.Println(place(order{"16", 900}, errors.New("out of stock")))
	fmt.Println(place(order{"17", 1250}, nil))
	fmt.Println(place(order{"17", 1250}, nil)) // a retry by a client that timed out

	published := make(chan pawl.Message)
	relay, err := outbox.NewRelay(pool, outbox.Config{Sink: outbox.Channel(published)})
	fmt.Println(err)
	ctx, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { _ = relay.Run(ctx) })
	m := <-published
	fmt.Println(m.ID, m.Headers["ce-subject"], string(m.Payload))
	stop()
	running.Wait()
	// Output:
	// out of stock
	// <nil>
	// <nil>
	// <nil>
	// 6:orders8:place-1711:OrderPlaced order/17 {"id":"17","cents":1250}
}

// If the sink reports that it is down, the relay pauses and charges no attempt to the event.
func ExampleFunc() {
	ctx, pool, end := example()
	defer end()
	_ = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		_, err := outbox.Append(ctx, tx, outbox.Event{Type: "Beat", Payload: []byte("1")})
		return err
	})
	done, tries := make(chan struct{}), 0
	relay, _ := outbox.NewRelay(pool, outbox.Config{
		Sink: outbox.Func(func(_ context.Context, m pawl.Message) error {
			if tries++; tries < 3 {
				return pawl.SinkDown(errors.New("503 Service Unavailable"))
			}
			fmt.Println(string(m.Payload), "is published at attempt", m.Attempt)
			close(done)
			return nil
		}),
		Hooks: pawl.Hooks{OnEvent: func(_ context.Context, e pawl.Event) {
			if e.Kind != pawl.EventPolled {
				fmt.Println(e.Kind)
			}
		}},
	})
	ctx, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { _ = relay.Run(ctx) })
	<-done
	stop()
	running.Wait()
	// Output:
	// error
	// error
	// 1 is published at attempt 1
	// succeeded
}

func example(schema ...string) (ctx context.Context, pool *pgxpool.Pool, end func()) {
	e := &pgtest.Example{}
	return e.Context(), pawltest.DB(e, schema...), e.End
}
