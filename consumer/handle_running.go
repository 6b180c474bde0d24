package consumer

import (
	"sync"

	"github.com/pawl-go/pawl"
)

// running holds the deliveries of handlers that have not returned.
type running struct {
	mu  sync.Mutex
	all map[*[]pawl.Delivery]struct{}
}

// enter adds the deliveries of a handler until it calls leave.
func (r *running) enter(ds ...pawl.Delivery) (leave func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all == nil {
		r.all = map[*[]pawl.Delivery]struct{}{}
	}
	r.all[&ds] = struct{}{}
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.all, &ds)
	}
}

func (r *running) left() (all []pawl.Delivery) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for ds := range r.all {
		all = append(all, *ds...)
	}
	return all
}
