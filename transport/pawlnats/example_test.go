package pawlnats_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/testbed/brokers"
	"github.com/pawl-go/pawl/outbox"
	"github.com/pawl-go/pawl/transport/pawlnats"
)

// exampleServer runs a NATS server in place of yours.
func exampleServer(ctx context.Context) (js jetstream.JetStream, stop func()) {
	server, err := brokers.NATS(ctx, brokers.Options{})
	if err != nil {
		log.Fatal(err)
	}
	conn, err := nats.Connect("nats://"+server.Addr(), nats.MaxReconnects(-1), nats.PingInterval(10*time.Second))
	if err != nil {
		log.Fatal(err)
	}
	js, err = jetstream.New(conn)
	if err != nil {
		log.Fatal(err)
	}
	return js, func() {
		conn.Close()
		_ = server.Stop()
	}
}

// makeOrders creates a stream and consumers, as an operator does once.
func makeOrders(ctx context.Context, js jetstream.JetStream, consumers ...jetstream.ConsumerConfig) {
	if _, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.>"}, MaxAge: 7 * 24 * time.Hour}); err != nil {
		log.Fatal(err)
	}
	for _, c := range consumers {
		c.AckPolicy, c.AckWait, c.MaxDeliver = jetstream.AckExplicitPolicy, 30*time.Second, -1
		if _, err := js.CreateConsumer(ctx, "ORDERS", c); err != nil {
			log.Fatal(err)
		}
	}
}

// The producer publishes one intent twice, and the source finds the same key both times. Package
// consumer passes the receipt of its commit to Ack. Without a receipt you can only release.
func Example() {
	ctx := context.Background()
	js, stop := exampleServer(ctx)
	defer stop()
	makeOrders(ctx, js, jetstream.ConsumerConfig{Durable: "billing"})
	for range 2 {
		m := nats.NewMsg("orders.placed")
		m.Header.Set(pawlnats.DefaultKeyHeader, "order-17")
		m.Header.Set(pawlnats.ProducedAtHeader, "2026-01-02T03:04:05Z")
		m.Data = []byte(`{"amount":1250}`)
		if _, err := js.PublishMsg(ctx, m); err != nil {
			log.Fatal(err)
		}
	}

	source, err := pawlnats.Open(ctx, js, "ORDERS", "billing", pawlnats.Config{})
	if err != nil {
		log.Fatal(err)
	}
	var all []pawl.Delivery
	for len(all) < 2 {
		ds, err := source.Receive(ctx, 10)
		if err != nil {
			log.Fatal(err)
		}
		all = append(all, ds...)
	}
	for _, d := range all {
		fmt.Println(d.Key, string(d.Payload), d.Receives, d.Log, d.Offset, d.Attributes[pawlnats.SubjectAttribute])
	}
	fmt.Println(source.Ack(ctx, pawl.Receipt{}) != nil)
	fmt.Println(source.Release(ctx, 0, all...), source.Stats().Released)
	fmt.Println(source.Finish(ctx))
	// Output:
	// order-17 {"amount":1250} 1 ORDERS 1 orders.placed
	// order-17 {"amount":1250} 1 ORDERS 2 orders.placed
	// true
	// <nil> 2
	// <nil>
}

// Open refuses a consumer that would lose messages, with a one-line error and a hint.
func ExampleOpen() {
	ctx := context.Background()
	js, stop := exampleServer(ctx)
	defer stop()
	makeOrders(ctx, js)
	_, err := js.CreateConsumer(ctx, "ORDERS", jetstream.ConsumerConfig{Durable: "billing", AckPolicy: jetstream.AckExplicitPolicy, MaxDeliver: 5})
	if err != nil {
		log.Fatal(err)
	}
	_, err = pawlnats.Open(ctx, js, "ORDERS", "billing", pawlnats.Config{})
	fmt.Println(err)
	// Output:
	// nats.open: P4004 an argument is missing or out of its bounds: the consumer ORDERS/billing delivers a message at most 5 times: after that it stays in the stream and is never delivered again (set max-deliver to -1; package consumer counts attempts and has dead letters)
}

// Each account keeps its order. Accounts in different partitions are handled concurrently.
func ExampleOpenPartitions() {
	ctx := context.Background()
	js, stop := exampleServer(ctx)
	defer stop()
	makeOrders(ctx, js,
		jetstream.ConsumerConfig{Durable: "part-0", FilterSubject: "orders.0.>", MaxAckPending: 1},
		jetstream.ConsumerConfig{Durable: "part-1", FilterSubject: "orders.1.>", MaxAckPending: 1})
	for _, subject := range []string{"orders.0.alice", "orders.0.alice", "orders.1.bob"} {
		if _, err := js.Publish(ctx, subject, nil); err != nil {
			log.Fatal(err)
		}
	}
	source, err := pawlnats.OpenPartitions(ctx, js, "ORDERS", []string{"part-0", "part-1"},
		pawlnats.Config{Key: pawlnats.KeyPosition(), OrderingKey: pawlnats.BySubjectToken(3)})
	if err != nil {
		log.Fatal(err)
	}
	held := map[string]pawl.Delivery{}
	for len(held) < 2 { // alice's second message waits for her first
		ds, err := source.Receive(ctx, 10)
		if err != nil {
			log.Fatal(err)
		}
		for _, d := range ds {
			held[d.OrderingKey] = d
		}
	}
	fmt.Println("alice", held["alice"].Offset, "bob", held["bob"].Offset)
	backlog, err := source.Backlog(ctx)
	fmt.Println(backlog.Pending, "waits,", backlog.AckPending, "are out", err)
	fmt.Println(source.Release(ctx, 0, held["alice"], held["bob"]))
	// Output:
	// alice 1 bob 3
	// 1 waits, 2 are out <nil>
	// <nil>
}

// A relay publishes the events of an outbox to a stream.
func ExampleOpenSink() {
	var pool *pgxpool.Pool // yours
	publish := func(ctx context.Context, js jetstream.JetStream) error {
		sink, err := pawlnats.OpenSink(ctx, js, "ORDERS", pawlnats.SinkConfig{SubjectOf: pawlnats.SubjectByType("orders")})
		if err != nil {
			return err
		}
		relay, err := outbox.NewRelay(pool, outbox.Config{Sink: sink})
		if err != nil {
			return err
		}
		return relay.Run(ctx)
	}
	_ = publish
	fmt.Println(pawlnats.SubjectByType("orders")(pawl.Message{AggregateType: "order", Type: "OrderPlaced"}))
	// Output: orders.order.OrderPlaced
}

// The key is in the body, or else in the sender's own header.
func ExampleKeyFirst() {
	key := pawlnats.KeyFirst(pawlnats.KeyJSON("/order/id"), pawlnats.KeyHeader("order-id"), pawlnats.KeyHeader(pawlnats.MsgIDHeader), pawlnats.KeyCloudEvent())
	m := nats.NewMsg("orders.placed")
	m.Header.Set("order-id", "17")
	fmt.Println(key.KeyOf(m))
	m.Data = []byte(`{"order":{"id":"18"}}`)
	fmt.Println(key.KeyOf(m))
	// Output:
	// 17
	// 18
}
