// Package service runs the parts of a program on one pool: consumers, workers, relays, schedules,
// sweepers and HTTP servers. Use it in the main function of a program that has one of them. It
// divides the pool, starts and stops the parts in order, and answers the probes of a platform.
//
//	func main() { service.Main(run) } // ctx ends at SIGTERM
//
//	func run(ctx context.Context) error {
//		pool, cfg, err := service.FromEnv(ctx) // DATABASE_URL and others
//		if err != nil {
//			return err
//		}
//		app, err := service.New(pool, cfg)
//		if err != nil {
//			return err
//		}
//		app.Consumer(consumer.Config{
//			Name: "orders", Source: source, Handler: consumer.HandleTx(place)})
//		app.Worker(job.Config{Queues: queues, Handlers: handlers})
//		app.HTTP(service.HTTPConfig{Address: ":8080", Handler: mux, MaxConns: 6})
//		return app.Run(ctx)
//	}
//
// A relay (outbox.Relay) publishes events of the outbox. A schedule keeper enqueues jobs at fixed
// times. A sweeper (guard.Sweeper) retries rows of your own tables.
//
// [App.Run] divides the pool among the parts. If the pool is too small, it returns an error with
// the number to set. It starts and stops the parts in this order:
//
//	start: relays ──▶ sweepers ──▶ workers, schedules ──▶ consumers ──▶ HTTP servers
//	stop:  HTTP servers ──▶ consumers ──▶ workers, schedules ──▶ sweepers ──▶ relays
//
// HTTP servers stop before consumers, so an accepted webhook still gets its response. Relays stop
// last, so the events of the last commits are published. A shutdown takes at most
// [Config].ShutdownTimeout.
//
// [App.Live] and [App.Ready] answer the probes of a platform. The liveness probe fails if the
// process makes no progress while work is due and the database is reachable. It does not fail while
// the database is unreachable, since a restart would not help.
package service
