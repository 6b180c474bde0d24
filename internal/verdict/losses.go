package verdict

import "sync"

// Bound is how many attempts in a row may be lost to outages that began while the server answered.
// The last of them is charged: its statement may be what takes the server down.
const Bound = 3

// maxLosses bounds the memory of losses. Beyond it all are forgotten, and counted anew.
const maxLosses = 10_000

// Losses counts, for each job or message, the attempts in a row that were lost to outages. The zero
// Losses is empty.
type Losses[K comparable] struct {
	mu   sync.Mutex
	lost map[K]int
}

// Lost counts one more loss, and returns how many there are in a row.
func (l *Losses[K]) Lost(key K) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lost == nil || len(l.lost) >= maxLosses {
		l.lost = map[K]int{}
	}
	l.lost[key]++
	return l.lost[key]
}

// Count is how many losses in a row there are.
func (l *Losses[K]) Count(key K) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lost[key]
}

// Charged notes that the losses were charged as one attempt. The next loss is charged again.
func (l *Losses[K]) Charged(key K) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lost[key] >= Bound {
		l.lost[key] = Bound - 1
	}
}

// Over forgets the losses: an attempt has come to an end.
func (l *Losses[K]) Over(key K) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.lost, key)
}
