// Package prompawl exports the metrics of package observe to Prometheus. Call [Register] once, and
// pass its hooks to every part of the program:
//
//	hooks, err := prompawl.Register(prometheus.DefaultRegisterer, pool)
//	if err != nil {
//		return err
//	}
//	cfg.Hooks = hooks // cfg is a service.Config, consumer.Config, job.Config or outbox.Config
//
// [Register] registers two collectors. [Events] counts events in this process. [Database] reads
// gauges from the database. Every process that registers Database exports the same numbers:
// register it in one, or use max without (instance), never sum.
package prompawl
