// Package pawlredis keeps the marks of a consumer's deliveries in Redis, using go-redis. Use it for
// streams in which most deliveries are duplicates, if the database is their bottleneck:
//
//	options := &redis.UniversalOptions{Addrs: []string{"localhost:6379"}}
//	filter, err := pawlredis.Open(options, pawlredis.Config{})
//	if err != nil {
//		return err
//	}
//	defer filter.Close()
//	c, err := consumer.New(pool, consumer.Config{
//		Name: "orders", Source: source, Handler: consumer.HandleTx(placeOrder), Filter: filter})
//
// The consumer stores a mark after COMMIT. It acknowledges a later delivery with the same mark
// without a transaction, after one read of the database for all deliveries that ask at the same
// time. Redis saves work, and decides nothing: see [consumer.Filter]. It may lose marks, return old
// or wrong ones, hang or be down. Then the delivery goes to the database, as without a filter.
//
//	delivery ──> GETRANGE ── no mark, error, 20 ms ───────────> transaction ──> COMMIT ──> SET PX
//	                │                                               ▲
//	                └── mark ──> read of the epoch ── another ──────┘
//	                                   └───────────── the same ──> acknowledged
//
// A [Filter] waits for an answer at most [Config].Timeout. After a failure it leaves Redis alone
// for [Config].Pause, and the consumer works without it.
package pawlredis
