// Package prompawl exports what package observe measures to Prometheus.
//
//	events := prompawl.NewEvents(observe.EventOptions{})
//	prometheus.MustRegister(events)
//	… consumer.Config{Hooks: pawl.Join(pawl.LogTo(nil), events.Hooks())}
//
// [NewDatabase] is a second collector, of what there is in the database. Every process that registers it exports the same numbers: do so
// in one, or take max without (instance), never sum.
package prompawl
