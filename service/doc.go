// Package service runs the parts of a program on one pool: consumers, workers, relays, schedules, HTTP servers.
//
//	pool, cfg, err := service.FromEnv(ctx)
//	app, err := service.New(pool, cfg)
//	app.Consumer(consumer.Config{Name: "orders", Source: source, Handler: consumer.HandleTx(place)})
//	app.Worker(job.Config{Queues: queues, Handlers: handlers})
//	app.HTTP(service.HTTPConfig{Address: ":8080", Handler: mux, MaxConns: 6})
//	return app.Run(ctx)
//
// [App.Run] divides the pool among the parts and refuses one that is too small, with the number to set. It starts the parts in order and
// stops them in the order that strands nothing:
//
//	start: relays ──▶ workers, schedules ──▶ consumers ──▶ HTTP servers
//	stop:  HTTP servers ──▶ consumers ──▶ workers, schedules ──▶ relays
//
// A server stops accepting before the consumers stop, so a webhook that was accepted still gets its answer. The relays stop last, so the
// events of the last commits go out. A stop takes [Config].ShutdownTimeout at most.
//
// [App.Live] and [App.Ready] answer the probes of a platform. A process that is connected and makes no progress while work is due fails
// the liveness probe; a database that is away does not make it fail, since a restart would not help.
package service
