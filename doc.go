// Package pawl holds the types, errors and events that all packages of Pawl share. Pawl is a
// library on PostgreSQL: a message, request or job may arrive many times, but takes effect once.
// Programs use this package for its keys, errors and hooks:
//
//	key := pawl.Key("order", orderID, "refund")          // one name for one intent
//	if errors.Is(err, pawl.ErrKeyReused) { … }           // the key came before, with another payload
//	if pawl.Retryable(err) { … }                         // the same call may succeed later
//	return pawl.Final(fmt.Errorf("no order %d", id))     // from a handler: no retry can help
//	hooks := pawl.LogTo(slog.Default())                  // one line for each event
//
// Start with the package for your task:
//
//	consumer                  messages from a broker or from webhooks
//	transport/…               sources and sinks: pawlsqs, pawlkafka, pawlnats, pawlrabbitmq, webhook
//	command/httpkey, command  requests with an idempotency key, over HTTP or not
//	job, schedule             work for later, or at fixed times
//	step                      calls to other systems, from any of these
//	outbox                    events to a broker
//	inbox, guard, lock        the same protection in a transaction of your own
//	service, migrate          run a program's parts on one pool; install the schema
//	ops, doctor, dashboard    look, change, find problems
//	pawltest                  tests with a real database, and with crashes
//
// To write a source or a sink, start with [Source], [Delivery] and [Sink].
//
// A message goes through these steps:
//
//	receive  →  claim  →  handle  →  commit  →  ack
//	   │          │         │          │         │
//	a batch    inbox     your rows   effect    with a
//	from the   row, in   in the      + inbox   Receipt,
//	source     your tx   same tx     together  or never
//
// A crash at any arrow costs a retry, never a second effect.
//
// # Terms
//
//   - intent: one thing that must happen once. A scope and a key name it; see [Intent].
//   - delivery: one arrival of a message. It is settled when it is acknowledged or released.
//   - claim: take a row for one attempt, so that no other attempt works on it.
//   - lease: a claim of a process holds until the process has missed heartbeats for this time.
//   - fence: a number that grows each time a row is claimed. A write with an older one is refused.
//   - stored delivery: a delivery that failed or could not run yet. It is kept as a job and retried
//     from the database.
//   - dead letter: a job that is not tried again until an operator decides.
//   - lane: jobs that run one at a time, in order, such as those of one ordering key. The first of
//     them is the lane's head.
//   - sequence gate: lets deliveries take effect in the order of their senders' numbers.
//   - suspect: a delivery or job that may have killed its process. It runs alone.
//   - step: a recorded call to another system; see package step.
//   - unknown: it cannot be known whether a call took effect. An operator's verdict settles it.
//   - sink, relay: a [Sink] is the place to which the outbox publishes. A relay is the worker that
//     publishes.
//   - presence connection: one connection of a worker beside the pool, with a lock that the server
//     frees when the process dies.
package pawl
