// Package pawlkafka receives from and publishes to Apache Kafka, using franz-go. Use [Open] for the
// source of a consumer, and [OpenSink] to publish the events of an outbox:
//
//	source, err := pawlkafka.Open(ctx, []kgo.Opt{kgo.SeedBrokers("localhost:9092")},
//		"billing", []string{"orders"}, pawlkafka.Config{}) // group, topics
//	if err != nil {
//		return err
//	}
//	c, err := consumer.New(pool, consumer.Config{
//		Name: "orders", Source: source, Handler: consumer.HandleTx(placeOrder)}) // then c.Run(ctx)
//
// A [Source] is one member of a consumer group. It keeps a window of records for each partition. A
// record is settled when it is acknowledged. The source commits up to the first unsettled record,
// the mark:
//
//	fetch ─▶ window: fresh ─▶ out ─▶ settled ──▶ the mark moves ──▶ committed within 100 ms
//	                   ▲       │                                     (one commit at a time)
//	                   └───────┘ released: waits in memory, and holds the mark
//
//	revoke: no new work starts; started work is awaited; the last commit is made;
//	        only then does the next owner get the partition
//	crash:  the next owner starts at the last commit; records settled after it come again
//	        and are absorbed as duplicates
//	stall:  when the session expires, another member gets the partition; records settled here
//	        later are not committed, even if the partition comes back
//
// Kafka delivers at least once: after a crash, a rewind or a lost commit, records come again. The
// database absorbs them by [pawl.Delivery.Key]: package consumer finds the key and acknowledges
// without calling your handler. Choose the source of that key with [Config.Key]; it
// is the one choice you have to get right. Never use the record's own key, which names an entity.
//
// Kafka does not count deliveries, so a record that kills its process would do so forever. The
// source counts takeovers of a partition in the metadata of its commits, and reports the count as
// [pawl.Delivery.Receives]. Package consumer uses that count to run a suspect alone: a record that
// may have killed its process.
//
// A consumer stores a record that failed in the database and acknowledges it. So a message that
// always fails blocks no partition. A consumer refuses the mode that retries from the source.
//
// A [Sink] publishes the events of an outbox, those of one aggregate in order to one partition. An
// aggregate is the entity that events are about, such as one order.
package pawlkafka
