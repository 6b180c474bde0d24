package pawlrabbitmq_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/consumer"
	"github.com/pawl-go/pawl/outbox"
	"github.com/pawl-go/pawl/transport/pawlrabbitmq"
)

// A consumer of a quorum queue.
func Example() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, "postgres://localhost/shop")
	if err != nil {
		log.Fatal(err)
	}
	source, err := pawlrabbitmq.Open(ctx, pawlrabbitmq.URL("amqps://shop:secret@rabbit.example.com/shop"), "orders", pawlrabbitmq.Config{})
	if err != nil {
		log.Fatal(err)
	}
	c, err := consumer.New(pool, consumer.Config{Name: "orders", Source: source,
		Handler: consumer.HandleTx(func(ctx context.Context, tx pgx.Tx, m consumer.Message[struct{ ID string }]) error {
			_, err := tx.Exec(ctx, "insert into orders (id) values ($1)", m.Value.ID)
			return err
		})})
	if err != nil {
		log.Fatal(err)
	}
	if err := c.Run(ctx); err != nil {
		log.Fatal(err)
	}
}

// Events of one account take effect in order. The queue has x-single-active-consumer.
func ExampleOpen_ordered() {
	ctx := context.Background()
	dial := pawlrabbitmq.URLConfig("amqps://shop:secret@rabbit.example.com/shop", amqp.Config{Heartbeat: 5 * time.Second})
	source, err := pawlrabbitmq.Open(ctx, dial, "ledger", pawlrabbitmq.Config{
		OrderingKey: pawlrabbitmq.ByHeader(pawlrabbitmq.GroupHeader), // ByRoutingKey, ByQueue
		Management:  "https://monitor:secret@rabbit.example.com:15671",
		Prefetch:    500,
	})
	if err != nil {
		log.Fatal(err)
	}
	backlog, err := source.Backlog(ctx)
	if err != nil {
		log.Fatal(err)
	}
	log.Printf("%d ready, %d consumers, %d lost handles", backlog.Ready, backlog.Consumers, source.Stats().LostHandles)
}

// A relay publishes the events of an outbox to an exchange.
func ExampleOpenSink() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, "postgres://localhost/shop")
	if err != nil {
		log.Fatal(err)
	}
	sink, err := pawlrabbitmq.OpenSink(ctx, pawlrabbitmq.URL("amqps://shop:secret@rabbit.example.com/shop"), "events", pawlrabbitmq.SinkConfig{
		RoutingKeyOf: func(m pawl.Message) string { return m.AggregateType + "." + m.Type },
	})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = sink.Close() }()
	relay, err := outbox.NewRelay(pool, outbox.Config{Sink: sink})
	if err != nil {
		log.Fatal(err)
	}
	if err := relay.Run(ctx); err != nil {
		log.Fatal(err)
	}
}

// The default exchange sends every event to the queue named by the routing key.
func ExampleSinkConfig() {
	_, _ = pawlrabbitmq.OpenSink(context.Background(), pawlrabbitmq.URL("amqp://localhost"), "", pawlrabbitmq.SinkConfig{RoutingKey: "orders"})
}

// The key comes from the place where the producer puts it.
func ExampleKeyFirst() {
	key := pawlrabbitmq.KeyFirst(pawlrabbitmq.KeyHeader("order-id"), pawlrabbitmq.KeyJSON("/order/id"), pawlrabbitmq.KeyMessageID(), pawlrabbitmq.KeyCloudEvent())
	fmt.Println(key.KeyOf(&amqp.Delivery{Headers: amqp.Table{"order-id": int64(17)}}))
	fmt.Println(key.KeyOf(&amqp.Delivery{Body: []byte(`{"order":{"id":"order-18"}}`)}))
	fmt.Println(pawlrabbitmq.KeyBody().KeyOf(&amqp.Delivery{Body: []byte("abc")})[:14])
	byTenant := pawlrabbitmq.KeyFunc(func(d *amqp.Delivery) string { return pawl.Key(d.AppId, d.MessageId) })
	fmt.Println(byTenant.KeyOf(&amqp.Delivery{AppId: "shop", MessageId: "7"}) == pawl.Key("shop", "7"))
	// Output:
	// 17
	// order-18
	// sha256:ba7816b
	// true
}
