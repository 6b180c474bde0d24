// Package transporttest has two acceptance suites that run against real brokers. Use them if you
// write a source or a sink of your own. [Run] is the suite for every [pawl.Source]: it tests what
// package consumer relies on. [RunSink] is the suite for every [pawl.Sink].
//
//	func TestSource(t *testing.T) {
//		transporttest.Run(t, transporttest.Broker{
//			Open:     newQueue, // a new queue for each test: func(*testing.T) transporttest.Queue
//			Features: transporttest.Features{Ordered: true, ReleaseDelay: true},
//		})
//	}
//
// A broker declares its features. The suite tests only those; other features are not promised.
//
// The suite treats a source as package consumer does. It asks a [pawl.Revocable] once for each
// delivery, and drops those no longer held. It stops a source with a Receive whose context has
// ended, acknowledges the handled deliveries, and calls Finish of a [pawl.Finisher] last.
// [pawl.SourceInfo] decides which deliveries may come again.
//
// Functions of a [Queue] attack it. Abandon crashes a receiver, Disconnect cuts its connection,
// Revoke takes its deliveries, and Bounce kills and restarts the broker.
//
// RunSink tests what a relay (outbox.Relay) relies on when a destination withholds, delays,
// reorders or cuts off its responses. The destination is a real one behind a proxy that passes each
// response when [Responses] says so, or one that the test implements.
//
// Every test runs in parallel on its own queue. The suite waits only for promised events, up to
// Broker.Timeout. It receives through the broker's own client and uses no database.
package transporttest
