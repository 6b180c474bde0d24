// Package transporttest has two acceptance suites, tried on the real thing. [Run] is the one for
// every [pawl.Source]: what package consumer relies on.
//
// A broker declares what it can do, and the suite tries that and nothing else; a feature that is not declared is not promised:
//
//	func TestSource(t *testing.T) {
//		transporttest.Run(t, transporttest.Broker{
//			Open:     open,                          // a queue of its own for each test
//			Features: transporttest.Features{Ordered: true, ReleaseDelay: true},
//		})
//	}
//
// The suite treats a source as package consumer does. It asks a [pawl.Revocable] once for each delivery before it goes on with it, and drops
// what is not held any more. It stops a source by a Receive whose context has ended, acknowledges what was handled, and calls Finish of a
// [pawl.Finisher] last. What a source says in [pawl.SourceInfo] decides what may come again.
//
// Functions of a [Queue] attack it: Abandon crashes a receiver, Disconnect cuts its connection, Revoke takes away what it holds, and Bounce
// kills the broker and starts it again.
//
// [RunSink] is the suite for every [pawl.Sink]: what a relay relies on when a destination
// withholds, delays, reorders or cuts off its answers. The destination is the real one, behind a
// proxy that lets each answer pass when [Answers] says so, or one that the test owns.
//
// Every test runs in parallel on a queue of its own. The suite only waits for what a broker promises, with deadlines of
// Broker.Timeout. It receives through the broker's own client; no database is involved.
package transporttest
