package pawlkafka_test

import (
	"context"
	"fmt"
	"log"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/consumer"
	"github.com/pawl-go/pawl/outbox"
	"github.com/pawl-go/pawl/transport/pawlkafka"
)

// The default key is the header Idempotency-Key, or the source and id of a CloudEvent.
func Example() {
	ctx, pool := context.Background(), (*pgxpool.Pool)(nil) // yours
	source, err := pawlkafka.Open(ctx, []kgo.Opt{kgo.SeedBrokers("localhost:9092")}, "billing", []string{"orders"}, pawlkafka.Config{})
	if err != nil {
		log.Fatal(err)
	}
	type order struct{ ID string }
	c, err := consumer.New(pool, consumer.Config{Name: "orders", Source: source,
		Handler: consumer.HandleTx(func(ctx context.Context, tx pgx.Tx, m consumer.Message[order]) error {
			_, err := tx.Exec(ctx, "insert into orders (id) values ($1)", m.Value.ID)
			return err
		})})
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(c.Run(ctx))
}

// Open refuses missing arguments and unsafe options. The error includes a hint.
func ExampleOpen() {
	_, err := pawlkafka.Open(context.Background(), []kgo.Opt{kgo.SeedBrokers("localhost:9092")}, "billing", nil, pawlkafka.Config{})
	fmt.Println(err)
	_, err = pawlkafka.Open(context.Background(), []kgo.Opt{kgo.SeedBrokers("localhost:9092"), kgo.BlockRebalanceOnPoll()}, "billing", []string{"orders"}, pawlkafka.Config{})
	fmt.Println(err)
	// Output:
	// kafka.open: P4004 an argument is missing or out of its bounds: the topics are []: name at least one (correct the argument that the error names)
	// kafka.open: P4004 an argument is missing or out of its bounds: the option kgo.BlockRebalanceOnPoll breaks a promise of Pawl (leave it out: one slow record would hold up the whole group)
}

// Several places for the idempotency key, in order of preference.
func ExampleKeyFirst() {
	record := pawlkafka.Record{Raw: &kgo.Record{Topic: "orders", Offset: 17, Key: []byte("customer-3"), Value: []byte(`{"order":{"id":"o-7"}}`),
		Headers: []kgo.RecordHeader{{Key: "ce_source", Value: []byte("/shop")}, {Key: "ce_id", Value: []byte("e-1")}}}}
	for _, from := range []pawlkafka.KeyFrom{
		pawlkafka.DefaultKey(),
		pawlkafka.KeyHeader(pawlkafka.DefaultKeyHeader),
		pawlkafka.KeyCloudEvent(),
		pawlkafka.KeyJSON("/order/id"),
		pawlkafka.KeyFirst(pawlkafka.KeyHeader("request-id"), pawlkafka.KeyJSON("/order/id")),
		pawlkafka.KeyFunc(func(r pawlkafka.Record) string { return "orders/" + fmt.Sprint(len(r.Raw.Value)) }),
		// The place in the log, which recognises redeliveries but not resends.
		pawlkafka.KeyPosition(),
	} {
		fmt.Printf("%q\n", from.KeyOf(record))
	}
	// Output:
	// "5:/shop3:e-1"
	// ""
	// "5:/shop3:e-1"
	// "o-7"
	// "o-7"
	// "orders/22"
	// ""
}

// The outbox publishes events to one topic per aggregate type.
func ExampleOpenSink() {
	ctx, pool := context.Background(), (*pgxpool.Pool)(nil) // yours
	sink, err := pawlkafka.OpenSink(ctx, []kgo.Opt{kgo.SeedBrokers("localhost:9092")}, []string{"order", "refund"},
		pawlkafka.SinkConfig{TopicOf: func(m pawl.Message) string { return m.AggregateType }})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = sink.Close() }()
	relay, err := outbox.NewRelay(pool, outbox.Config{Sink: sink})
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(relay.Run(ctx))
}
