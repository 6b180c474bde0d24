package kick

import "sync"

// Schedules is the payload of a notification for the keepers of schedules; other payloads are queue
// numbers.
const Schedules = "schedules"

// keepers of this process, each with room for one kick. A keeper has no listening connection; a
// worker in the same process passes notifications on.
var keepers struct {
	mu  sync.Mutex
	all map[chan struct{}]struct{}
}

// Keeper returns a channel that ends a keeper's wait, until leave is called.
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

// Keepers makes the keepers of this process look at their schedules. A keeper of another database
// does so in vain.
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
