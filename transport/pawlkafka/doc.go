// Package pawlkafka receives from and publishes to Apache Kafka, on franz-go.
//
// A [Source] is one member of a consumer group. It keeps a window of records for each of its
// partitions, and commits behind the longest run of settled ones:
//
//	fetch ─▶ window: fresh ─▶ out ─▶ settled ──▶ the mark moves ──▶ committed within 100 ms
//	                   ▲       │                                     (one commit at a time)
//	                   └───────┘ given back: waits in memory, and holds the mark
//
//	revoke: nothing more begins; what has begun is waited for; the last commit; only then the next owner gets the partition
//	crash:  the next owner begins at the last commit; what was settled behind it comes again and is absorbed
//	stall:  past the session the next owner has it; what is settled here afterwards commits nothing, also if the partition comes back
//
// Kafka promises at-least-once and nothing more: after a crash, a rewind or a commit that was lost,
// records come again. The database absorbs them by [pawl.Delivery.Key]; see [Config.Key] for where
// that key comes from, which is the one choice you have to get right. It is never the key of the
// record, which names an entity.
//
// Kafka counts no deliveries, so a record that kills its process would do so for ever. The source
// counts takeovers of a partition in the metadata of its commits, and reports the count as
// [pawl.Delivery.Receives]: package consumer then runs the suspect alone.
//
// A record that failed is stored in the database, and its offset is free. So poison holds up no
// partition, and a consumer refuses the mode that retries from the source.
//
// A [Sink] publishes the events of an outbox, those of one aggregate to one partition, in order or
// not at all.
package pawlkafka
