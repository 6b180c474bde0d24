package dashboard

import (
	"context"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/catalog"
	"github.com/pawl-go/pawl/ops"
)

// countLimit is the highest exact count. A greater number means more than countLimit.
const countLimit = catalog.GlanceLimit

// glance is what [ops.Look] shows without the lag of the outbox. Its cost does not grow with the
// tables, since counts stop at countLimit + 1. It counts the dead letters, unknown and cancelled
// jobs of a queue together.
func glance(ctx context.Context, db pawl.DB) (o ops.Overview, err error) {
	standing, err := catalog.GlanceStanding[ops.Overview](ctx, db)
	if err != nil {
		return o, err
	}
	o = standing[0]
	if o.Queues, err = catalog.Glance[ops.Queue](ctx, db); err != nil {
		return o, err
	}
	if o.Workers, err = catalog.Workers[ops.Worker](ctx, db); err != nil {
		return o, err
	}
	o.Consumers, err = catalog.Consumers[ops.Consumer](ctx, db)
	return o, err
}
