// Package prompawl exports what package observe measures to Prometheus.
//
//	hooks, err := prompawl.Register(prometheus.DefaultRegisterer, pool)
//	… service.Config{Hooks: hooks}
//
// [Register] registers two collectors: [Events] counts what happens in this process, and [Database] shows what there is in the database. Every process that registers it exports the same numbers: do so
// in one, or take max without (instance), never sum.
package prompawl
