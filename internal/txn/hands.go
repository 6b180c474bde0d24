package txn

import "sync"

// idleHands is how many goroutines are kept for later.
const idleHands = 64

// Hands run what needs a goroutine of its own: user code, which may exit it, and a COMMIT, whose caller may give up waiting. They are
// goroutines that are used again: a new one grows its stack anew each time, which was a tenth of what a small transaction costs the client.
//
// They belong to a worker or a consumer, and go when its Run ends. Nil means no hands: each function gets a new goroutine.
type Hands struct {
	mu      sync.Mutex
	idle    []chan func() // of each that waits for its next function; closed when it is to go
	staying bool
}

// Stay lets idle goroutines stay, or sends them away.
func (h *Hands) Stay(on bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.staying = on
	if !on {
		for _, next := range h.idle {
			close(next)
		}
		h.idle = nil
	}
}

// do runs fn in a goroutine of its own.
func (h *Hands) do(fn func()) {
	if h == nil {
		go fn()
		return
	}
	h.mu.Lock()
	n := len(h.idle)
	if n == 0 {
		h.mu.Unlock()
		go h.work(fn)
		return
	}
	next := h.idle[n-1]
	h.idle[n-1], h.idle = nil, h.idle[:n-1]
	h.mu.Unlock()
	next <- fn
}

// work runs one function after the other. If one exits the goroutine, that was the last.
func (h *Hands) work(fn func()) {
	next := make(chan func(), 1)
	for more := true; more; fn, more = <-next {
		fn()
		if !h.rest(next) {
			return
		}
	}
}

// rest has a goroutine be found by the next function, unless it is to go.
func (h *Hands) rest(next chan func()) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.staying || len(h.idle) == idleHands {
		return false
	}
	h.idle = append(h.idle, next)
	return true
}
