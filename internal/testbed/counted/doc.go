// Package counted runs load against a transport under faults: SIGKILL of workers at named points,
// broker crashes and silent networks. Worker processes consume and publish. Each run then checks
// from the database rows that every intent took effect once.
//
//	producer ──▶ broker ◀──▶ proxy ──▶ worker 1..n (the test binary) ──▶ PostgreSQL
//	   │           ▲ SIGKILL   silence     │  ▲ SIGKILL, SIGTERM, SIGSTOP    │
//	   │           └──────── the run ──────┼──┘                       orders, ledger
//	   └─ orders that were sent            └─ journal: deliveries, receipts  │
//	          │                                 and events                   │
//	          │                                      │                       │
//	          └────────────▶ verdict ◀───────────────┴── checker ◀───────────┘
//
// A transport plugs in with a TestMain and one description:
//
//	func TestMain(m *testing.M) {
//		counted.Main(m, counted.Opener{
//			Source: func(ctx context.Context, s counted.Spec) (pawl.Source, error) {
//				return open(ctx, s.Addr, s.Name, s.Session, s.Mutant)
//			},
//			Sink: func(ctx context.Context, s counted.Spec) (pawl.Sink, error) {
//				return openSink(ctx, s.Addr, s.Name)
//			},
//		})
//	}
//
//	func TestCounted(t *testing.T) { counted.All(t, transport) }
//
//	func TestCounted_FindsMutants(t *testing.T) {
//		// a mutant of this package
//		counted.MustFail(t, transport, counted.Kill, counted.AckFirst)
//		// a mutant of the transport, in Spec.Mutant
//		counted.MustFail(t, transport, counted.Rebalance, "commit the highest settled")
//	}
//
//	var transport = counted.Transport{
//		Name:    "nats",
//		Session: 2 * time.Second, // AckWait; open sets it from Spec.Session
//		// *brokers.Server is a counted.Mortal.
//		Start: func(t testing.TB, need counted.Need) counted.Broker {
//			s, err := brokers.NATS(t.Context(), brokers.Options{})
//			...
//			t.Cleanup(func() { _ = s.Stop() })
//			return s
//		},
//		Create: ..., // an empty stream and its consumer
//		Send:   ..., // until confirmed; an error sends all again
//		Left:   ..., // unsettled messages
//	}
//
// The run parses the standard output of worker processes, so a transport must not print to it. If a
// worker exits by itself, the run shows its standard error.
//
// Each run returns a [Verdict], logged as one line. [Play] fails the test if a promise did not hold
// or if the faults did not happen. [MustFail] runs with a mutant and fails if no violation is
// found. For each violated order the verdict shows its deliveries by process, its inbox row, its
// job row and its effects.
//
// Flags: -counted.full plays the long counts. -counted.seed repeats the random choices of a run,
// which are what it sends, loses and kills, but not the scheduler's. -counted.report appends each
// verdict to a file as a line of JSON.
//
// The runs:
//
//	kill       each order three times; consumers are killed at each step
//	batch      the same with a handler that takes many deliveries in one transaction
//	order      the same with handlers that fail; only for an ordered transport
//	ack loss   dropped receipts and dropped responses of Receive
//	rolling    SIGTERM to one consumer after another under load, and some SIGKILLs
//	rebalance  consumers join and leave while the committed offset is watched; only for a log
//	broker     SIGKILL of the broker behind a relay
//	cut        a network that drops packets for longer than the session
//	freeze     SIGSTOP for longer than the session
//	poison     orders that kill their process or are invalid become dead letters
//	size       bodies of 1 MiB in bounded memory
//	memory     the broker loses its data and restarts its positions
//	sink       SIGKILL of relays around Publish, and of the broker
package counted
