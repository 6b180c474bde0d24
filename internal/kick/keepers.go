package kick

import "sync"

// Schedules is what a notification carries that is for the keepers of schedules, in place of the number of a queue.
const Schedules = "schedules"

// keepers of this process, each with room for one kick. A keeper has no connection that listens: a worker beside it hears for it.
var keepers struct {
	mu  sync.Mutex
	all map[chan struct{}]struct{}
}

// Keeper returns what ends the wait of a keeper, until leave is called.
func Keeper() (kicked <-chan struct{}, leave func()) {
	mine := make(chan struct{}, 1)
	keepers.mu.Lock()
	defer keepers.mu.Unlock()
	if keepers.all == nil {
		keepers.all = map[chan struct{}]struct{}{}
	}
	keepers.all[mine] = struct{}{}
	return mine, func() {
		keepers.mu.Lock()
		defer keepers.mu.Unlock()
		delete(keepers.all, mine)
	}
}

// Keepers has the keepers of this process look at the schedules. One of another database looks in vain.
func Keepers() {
	keepers.mu.Lock()
	defer keepers.mu.Unlock()
	for k := range keepers.all {
		select {
		case k <- struct{}{}:
		default:
		}
	}
}
