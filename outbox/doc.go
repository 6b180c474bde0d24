// Package outbox publishes an event if and only if the transaction that appended it commits. Use it
// to tell other services what happened. Append the event in the transaction that writes your rows,
// and run a [Relay] with a sink, which is the place to publish to:
//
//	_, err := outbox.Append(ctx, tx, outbox.Event{
//		Type: "OrderPlaced", AggregateType: "order", AggregateID: order.ID, Value: order})
//
//	relay, err := outbox.NewRelay(pool, outbox.Config{Sink: sink}) // such as pawlkafka.OpenSink
//	if err != nil {
//		return err
//	}
//	return relay.Run(ctx) // until ctx ends
//
// Start with [Append], [Event] and [Config]. [Func] and [Channel] make a sink of a function or of a
// channel.
//
//	your transaction: your rows + Append ── commit ──▶ a job in queue outbox/SINK, lane AGGREGATE
//	                                                       │
//	    Relay: claim ──▶ Sink.Publish ──▶ finish ◀─────────┘
//	             ▲            │     └── a crash in between publishes again, with the same id
//	             │            ├── refused: retried with back-off
//	             │            └── pawl.Final, or the last of MaxAttempts refused: a dead letter
//	             └── the sink is down: nothing is charged; the relay probes with single events
//
// An aggregate is the entity that events are about, such as one order. Its events are published one
// at a time, in the order in which they were appended. Aggregates do not wait for each other. A
// receiver sees each event at least once. If the receiver uses Pawl's inbox, the event has its
// effect once: its id travels in the header pawl-event-id, and on SQS as the idempotency key.
//
// An event is a job (package job). Leases, fences, retries, dead letters, lanes and the operator's
// commands are those of jobs. A dead letter is an event that is not published until an operator
// decides. A lane is the order of one aggregate.
package outbox

// For maintainers: the files by step of an event's way.
//
//	event.go    Append: an event becomes a job; Kick wakes relays after your commit
//	relay.go    the relay, a job.Worker: it claims jobs, and publish runs the steps below for them
//	message.go  a claimed job becomes a pawl.Message with the headers of CloudEvents
//	batch.go    batchesOf adds the events behind a claimed one, if the sink takes batches
//	publish.go  deliver calls the sink: events together, excused ones singly, batches each in a call
//	breaker.go  judge decides which failures are charged, and whether the sink is down
//	batch.go    finish ends the jobs of published batches; the job.Worker ends all others
//
// config.go, sink.go (Func, Channel) and http.go (NewRequest, for a Func) stand beside the steps.
