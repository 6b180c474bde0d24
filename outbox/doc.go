// Package outbox publishes an event if and only if the transaction that appended it commits.
//
//	your transaction: your rows + Append ── commit ──▶ a job in queue outbox/SINK, lane AGGREGATE
//	                                                       │
//	    Relay: claim ──▶ Sink.Publish ──▶ finish ◀─────────┘
//	             ▲            │     └── a crash in between publishes again, with the same id
//	             │            ├── refused: retried with back-off
//	             │            └── pawl.Final, or the last of MaxAttempts refused: a dead letter
//	             └── the sink is down: nothing is charged; the relay probes with single events
//
// Events of one aggregate are published one at a time, in the order in which they were appended.
// Aggregates do not wait for each other. A receiver sees each event at least once. If the receiver
// uses Pawl's inbox, the event has its effect once: its id travels in the header pawl-event-id, and
// on SQS as the idempotency key.
//
// An event is a job (package job). Leases, fences, retries, dead letters, lanes and the operator's
// commands are those of jobs.
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
