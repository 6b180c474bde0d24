package prompawl

import (
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/observe"
)

// Register registers [Events] and, if pool is not nil, [Database], with default options. It returns
// hooks that feed the metrics and log to the default logger, as pawl.LogTo(nil) does. Pass the
// hooks to every part of the program. Call Register once for each registerer, such as
// [prometheus.DefaultRegisterer].
//
// Errors: those of to.Register.
func Register(to prometheus.Registerer, pool *pgxpool.Pool) (pawl.Hooks, error) {
	events := NewEvents(observe.EventOptions{})
	if err := to.Register(events); err != nil {
		return pawl.Hooks{}, err
	}
	if pool != nil {
		database, err := NewDatabase(pool, observe.DatabaseOptions{})
		if err != nil {
			return pawl.Hooks{}, err
		}
		if err := to.Register(database); err != nil {
			return pawl.Hooks{}, err
		}
	}
	return pawl.Join(events.Hooks(), pawl.LogTo(nil)), nil
}
