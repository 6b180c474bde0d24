// Package transporttest is one acceptance suite for every [pawl.Source]: what package consumer relies on, tried on the real thing.
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
// Every test runs in parallel on a queue of its own. The suite only waits for what a broker promises, with deadlines of
// Broker.Timeout. It receives through the broker's own client; no database is involved.
package transporttest
