// Package prompawl exports the metrics of package observe to Prometheus.
//
//	hooks, err := prompawl.Register(prometheus.DefaultRegisterer, pool)
//	… service.Config{Hooks: hooks}
//
// [Register] registers two collectors. [Events] counts events in this process. [Database] reads
// gauges from the database. Every process that registers Database exports the same numbers:
// register it in one, or use max without (instance), never sum.
package prompawl
