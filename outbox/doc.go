// Package outbox publishes events if and only if the transaction committed that appended them.
//
//	your transaction: your rows + Append ── commit ──▶ a job in queue outbox/SINK, in the lane of its aggregate
//	                                                       │
//	    Relay: claim ──▶ Sink.Publish ──▶ finish ◀─────────┘
//	             ▲            │     └── a crash in between publishes once more, with the same id
//	             │            └── refused: tried again with back-off; a dead letter after MaxAttempts, or pawl.Final
//	             └── the sink is down: nothing is charged, the relay asks for one event at a time until it is back
//
// Events of one aggregate are published one at a time, in the order in which they were appended; different aggregates do not
// wait for each other. A receiver sees each event at least once, and behind Pawl's inbox has its effect once: the id travels as
// header pawl-event-id, and on SQS as the idempotency key.
//
// An event is a job (package job): its lease, fence, retries, dead letters and lanes are those of jobs, and so are the operator's
// verbs.
package outbox
