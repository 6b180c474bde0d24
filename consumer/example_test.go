package consumer_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/consumer"
	"github.com/pawl-go/pawl/guard"
	"github.com/pawl-go/pawl/internal/testbed/pgtest"
	"github.com/pawl-go/pawl/pawltest"
)

// An Order is the payload of a message.
type Order struct {
	ID    string `json:"id"`
	Cents int    `json:"cents"`
}

// placeOrder commits together with the record that the message was seen, or not at all.
func placeOrder(ctx context.Context, tx pgx.Tx, m consumer.Message[Order]) error {
	_, err := tx.Exec(ctx, "insert into orders values ($1, $2)", m.Value.ID, m.Value.Cents)
	return err
}

// A message comes three times and takes effect once.
func Example() {
	t := &pgtest.Example{}
	defer t.End()
	pool := pawltest.DB(t, "create table orders (id text, cents int)")
	source := &pawltest.Source{} // yours is pawlsqs.Open, or a webhook.Receiver
	message := pawl.Delivery{Key: "order-17", Payload: []byte(`{"id": "17", "cents": 1250}`)}
	source.Send(message, message, message)

	c, err := consumer.New(pool, consumer.Config{Name: "orders", Source: source, Handler: consumer.HandleTx(placeOrder),
		Hooks: (&pawl.Counters{}).Hooks()})
	if err != nil {
		panic(err)
	}
	ctx, stop := context.WithCancel(context.Background()) // yours ends at SIGTERM
	ended := make(chan error)
	go func() { ended <- c.Run(ctx) }()
	for source.Open() > 0 {
		time.Sleep(time.Millisecond)
	}
	stop()
	fmt.Println(<-ended)
	var orders, cents int
	err = pool.QueryRow(context.Background(), "select count(*), sum(o.cents) from orders as o").Scan(&orders, &cents)
	fmt.Println(orders, "order of", cents, err)
	// Output:
	// <nil>
	// 1 order of 1250 <nil>
}

// Many messages are one transaction and one statement. One that fails costs only itself.
func ExampleHandleManyTx() {
	t := &pgtest.Example{}
	defer t.End()
	pool := pawltest.DB(t, "create table orders (id text, cents int check (cents > 0))")
	source := &pawltest.Source{}
	for id, cents := range []int{100, 200, -300, 400} {
		source.Send(pawl.Delivery{Key: fmt.Sprint(id), Payload: fmt.Appendf(nil, `{"id": "%d", "cents": %d}`, id, cents)})
	}
	handler := consumer.HandleManyTx(func(ctx context.Context, tx pgx.Tx, ms []consumer.Message[Order]) error {
		_, err := tx.CopyFrom(ctx, pgx.Identifier{"orders"}, []string{"id", "cents"},
			pgx.CopyFromSlice(len(ms), func(i int) ([]any, error) { return []any{ms[i].Value.ID, ms[i].Value.Cents}, nil }))
		return err
	})
	n := pawltest.Consume(t, pool, consumer.Config{Name: "orders", Source: source,
		Handler: handler.With(consumer.ManyTxPolicy{BatchSize: 500}), Hooks: (&pawl.Counters{}).Hooks()})
	fmt.Println(n.Count(pawl.EventSucceeded), "took effect,", n.Count(pawl.EventFailed), "dead letter")
	// Output: 3 took effect, 1 dead letter
}

// The handler writes through a *sql.Tx: it is the transaction that records the delivery.
func ExampleHandleSQL() {
	t := &pgtest.Example{}
	defer t.End()
	pool := pawltest.DB(t, "create table orders (id text, cents int)")
	source := &pawltest.Source{}
	for range 2 { // the second is a duplicate
		source.Send(pawl.Delivery{Key: "order-17", Payload: []byte(`{"id": "17", "cents": 1250}`)})
	}
	handler := consumer.HandleSQL(func(ctx context.Context, tx *sql.Tx, m consumer.Message[Order]) error {
		_, err := tx.ExecContext(ctx, "insert into orders values ($1, $2)", m.Value.ID, m.Value.Cents)
		return err
	})
	n := pawltest.Consume(t, pool, consumer.Config{Name: "orders", Source: source, Handler: handler, Hooks: (&pawl.Counters{}).Hooks()})
	fmt.Println(n.Count(pawl.EventSucceeded), "took effect")
	// Output: 1 took effect
}

// A call to another system is made with no transaction open. Its result and the end of the delivery
// commit together.
func ExampleHandle() {
	t := &pgtest.Example{}
	defer t.End()
	pool := pawltest.DB(t, "create table mail (id text)")
	source := &pawltest.Source{}
	source.Send(pawl.Delivery{Key: "order-17", Payload: []byte(`{"id": "17", "cents": 1250}`)})
	// send ignores a second call with the same key.
	send := func(key string, o Order) (id string, err error) { return "mail of " + o.ID + " under key " + key, nil }

	handler := consumer.Handle(func(ctx context.Context, a *consumer.Attempt[Order]) error {
		id, err := send(a.Key, a.Value)
		if err != nil {
			return err // the delivery is retried
		}
		return a.Commit(ctx, func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "insert into mail values ($1)", id)
			return err
		})
	})
	pawltest.Consume(t, pool, consumer.Config{Name: "mailing", Source: source, Handler: handler.With(consumer.Policy{Timeout: time.Minute})})
	var id string
	err := pool.QueryRow(context.Background(), "select m.id from mail as m").Scan(&id)
	fmt.Println(id, err)
	// Output: mail of 17 under key order-17 <nil>
}

// A message names a row, and the row remembers that it was handled.
func ExampleTrigger() {
	t := &pgtest.Example{}
	defer t.End()
	pool := pawltest.DB(t, "create table orders (id bigint, status text not null default 'pending', claimed_at timestamptz, "+
		"completed_at timestamptz, last_error text, attempt_count int not null default 0)", "insert into orders values (17)")
	rows, err := guard.New(pool, guard.Table{Name: "orders"})
	if err != nil {
		panic(err)
	}
	source := &pawltest.Source{}
	source.Send(pawl.Delivery{Payload: []byte("17")}, pawl.Delivery{Payload: []byte("17")})

	shipped := 0
	handler := consumer.Trigger(func(ctx context.Context, m consumer.Message[int64]) error {
		return rows.Once(ctx, m.Value, func(context.Context, pgx.Tx) (any, error) {
			shipped++
			return nil, nil
		})
	})
	pawltest.Consume(t, pool, consumer.Config{Name: "shipping", Source: source, Handler: handler, Concurrency: 1})
	fmt.Println("shipped", shipped, "time")
	// Output: shipped 1 time
}

// A failure that no retry can help becomes a dead letter at once. Others are retried, here twice.
func ExamplePolicy() {
	t := &pgtest.Example{}
	defer t.End()
	pool := pawltest.DB(t)
	source := &pawltest.Source{}
	source.Send(pawl.Delivery{Key: "a", Payload: []byte(`{"id": "closed"}`)}, pawl.Delivery{Key: "b", Payload: []byte(`{"id": "busy"}`)},
		pawl.Delivery{Key: "c", Payload: []byte("no JSON")})
	handler := consumer.HandleTx(func(_ context.Context, _ pgx.Tx, m consumer.Message[Order]) error {
		if m.Value.ID == "closed" {
			return pawl.Final(errors.New("the account is closed"))
		}
		return errors.New("the account is busy")
	})
	n := pawltest.Consume(t, pool, consumer.Config{Name: "orders", Source: source, Hooks: (&pawl.Counters{}).Hooks(),
		Handler: handler.With(consumer.TxPolicy{Policy: consumer.Policy{MaxAttempts: 2}})})
	fmt.Println(n.Count(pawl.EventRetryable), "retry,", n.Count(pawl.EventFailed), "dead letters")
	// Output: 1 retry, 3 dead letters
}

// Senders number their messages. An early message waits until the numbers before it have come.
func ExampleSequenceGate() {
	t := &pgtest.Example{}
	defer t.End()
	pool := pawltest.DB(t, "create table booking (at bigint generated always as identity, number int)")
	type booking struct {
		Account string
		Number  int64
	}
	first := int64(1)
	gate := &consumer.SequenceGate{Mode: consumer.GateStrict, First: &first, Of: func(d pawl.Delivery) (resource string, seq int64, err error) {
		_, err = fmt.Sscan(d.Attributes["number"], &seq)
		return d.Attributes["account"], seq, err
	}}
	handler := consumer.HandleTx(func(ctx context.Context, tx pgx.Tx, m consumer.Message[booking]) error {
		_, err := tx.Exec(ctx, "insert into booking (number) values ($1)", m.Value.Number)
		return err
	}).With(consumer.TxPolicy{SequenceGate: gate})

	source := &pawltest.Source{}
	for _, number := range []string{"3", "1", "2"} {
		source.Send(pawl.Delivery{Key: "7/" + number, Attributes: map[string]string{"account": "7", "number": number},
			Payload: []byte(`{"account": "7", "number": ` + number + `}`)})
	}
	pawltest.Consume(t, pool, consumer.Config{Name: "bookings", Source: source, Handler: handler, Concurrency: 1})
	var numbers string
	err := pool.QueryRow(context.Background(), "select string_agg(b.number::text, ' ' order by b.at) from booking as b").Scan(&numbers)
	fmt.Println(numbers, err)
	// Output: 1 2 3 <nil>
}

// Middleware sees every call, at the first try and at every retry.
func ExampleMiddleware() {
	t := &pgtest.Example{}
	defer t.End()
	pool := pawltest.DB(t, "create table orders (id text, cents int)")
	source := &pawltest.Source{}
	source.Send(pawl.Delivery{Key: "order-17", Payload: []byte(`{"id": "17", "cents": 1250}`)})
	note := func(ctx context.Context, c consumer.Call, next func(context.Context) error) error {
		err := next(ctx)
		fmt.Println(c.Consumer, c.Deliveries[0].Key, err)
		return err
	}
	pawltest.Consume(t, pool, consumer.Config{Name: "orders", Source: source, Handler: consumer.HandleTx(placeOrder),
		Middleware: []consumer.Middleware{note}})
	// Output: orders order-17 <nil>
}
