// Package counted plays counted runs for a transport: worker processes that consume and publish, SIGKILLs at named points, a broker that dies, networks
// that go silent. Each run then counts, from the rows alone, that every intent took effect once.
//
//	producer ──▶ broker ◀──▶ proxy ──▶ worker 1..n (the test binary, started again) ──▶ PostgreSQL
//	   │           ▲ SIGKILL   silence     │  ▲ SIGKILL, SIGTERM, SIGSTOP                     │
//	   │           └──────── the run ──────┼──┘                                           orders, ledger
//	   └─ orders that were sent            └─ journal: each delivery, receipt and event        │
//	          │                                      │                                         │
//	          └────────────▶ verdict ◀───────────────┴────────────── internal/testbed/checker ◀────────┘
//
// A transport plugs in with a TestMain and one description:
//
//	func TestMain(m *testing.M) {
//		counted.Main(m, counted.Opener{
//			Source: func(ctx context.Context, s counted.Spec) (pawl.Source, error) { return open(ctx, s.Addr, s.Name, s.Session, s.Mutant) },
//			Sink:   func(ctx context.Context, s counted.Spec) (pawl.Sink, error) { return openSink(ctx, s.Addr, s.Name) },
//		})
//	}
//
//	func TestCounted(t *testing.T) { counted.All(t, transport) }
//
//	func TestCounted_FindsMutants(t *testing.T) {
//		counted.MustFail(t, transport, counted.Kill, counted.AckFirst)              // a mutant of this package
//		counted.MustFail(t, transport, counted.Rebalance, "commit the highest settled") // one of the transport's own, in Spec.Mutant
//	}
//
//	var transport = counted.Transport{
//		Name:    "nats",
//		Session: 2 * time.Second, // AckWait; open sets the same from Spec.Session
//		Start: func(t testing.TB, need counted.Need) counted.Broker { // *brokers.Server is a counted.Mortal
//			s, err := brokers.NATS(t.Context(), brokers.Options{})
//			...
//			t.Cleanup(func() { _ = s.Stop() })
//			return s
//		},
//		Create: ..., // an empty stream and its consumer
//		Send:   ..., // confirmed; all again after an error
//		Left:   ..., // messages that nobody has settled
//	}
//
// What a worker process writes to its standard output is read by the run: a transport must not print there. Its standard error is shown if it ends
// by itself.
//
// A run tells what it found in a [Verdict], which is logged as one line. [Play] fails the test if a promise did not hold, and also if the faults did
// not happen. [MustFail] plays a run with a mutant and fails if the judge finds nothing. An order that went wrong is named with its story: its deliveries
// by process, its inbox row, its job row, its effects.
//
// Flags: -counted.full plays the long counts, -counted.seed repeats the choices of a run, -counted.report appends each verdict to a file as a line of
// JSON. The seed decides what is sent, lost and killed. It does not decide what the scheduler does.
//
// The runs:
//
//	kill       each order three times; consumers are killed at each step
//	batch      the same with a handler that takes many deliveries in one transaction
//	order      the same with handlers that fail; only of an ordered transport
//	ack loss   receipts swallowed, answers of Receive cut off
//	rolling    SIGTERM to one consumer after the other under load, and some SIGKILLs
//	rebalance  joins and leaves while the committed offset is watched; only of a log
//	broker     SIGKILL of the broker behind a relay
//	cut        a network that goes silent for longer than the session
//	freeze     SIGSTOP for longer than the session
//	poison     orders that kill their process or are invalid become dead letters
//	size       bodies of 1 MiB in bounded memory
//	memory     the broker forgets and begins anew
//	sink       relays killed around publish, and the broker
package counted
