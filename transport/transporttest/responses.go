package transporttest

import (
	"math/rand/v2"
	"slices"
	"sync"
)

// Responses decides when a destination responds, and in which order. The destination reports each
// message that arrives and passes each response to Responses. The suite releases a response,
// withholds it, or never sends it. All methods may be called concurrently.
type Responses struct {
	inOrder bool
	sending sync.Mutex // held while a response is sent, so that they are sent one at a time

	mu          sync.Mutex
	keeps       func(id string) bool
	omitted     map[string]bool
	kept        []response
	given       map[string]bool // ids confirmed by a sent response
	unmentioned int             // messages of dropped responses
	events      int
	onEvent     func(n int)
}

// A response is a destination's response for one or several messages.
type response struct {
	ids, confirmed []string
	send           func()
}

func newResponses(inOrder bool) *Responses {
	return &Responses{inOrder: inOrder, omitted: map[string]bool{}, given: map[string]bool{}}
}

// Arrived records that a message has reached the destination.
func (a *Responses) Arrived() { a.event() }

// Omits reports whether the response must not mention a message. Ask it if one response covers
// several messages. Send drops a response that covers only omitted messages.
func (a *Responses) Omits(id string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.omitted[id]
}

// Send passes the response for the messages ids, which confirms some of them. It calls send at most
// once: now, later from another goroutine, or never. send must not block, and must do nothing if
// its connection is closed.
func (a *Responses) Send(ids, confirmed []string, send func()) {
	a.mu.Lock()
	omitted := !slices.ContainsFunc(ids, func(id string) bool { return !a.omitted[id] })
	keep := a.keeps != nil && slices.ContainsFunc(ids, a.keeps) || a.inOrder && len(a.kept) > 0
	one := response{ids, confirmed, send}
	switch {
	case omitted:
		a.unmentioned += len(ids)
	case keep:
		a.kept = append(a.kept, one)
	}
	a.mu.Unlock()
	if !omitted && !keep {
		a.sendNow(one)
	}
}

func (a *Responses) sendNow(one response) {
	a.sending.Lock()
	defer a.sending.Unlock()
	a.event()
	a.mu.Lock()
	for _, id := range one.confirmed {
		a.given[id] = true
	}
	a.mu.Unlock()
	one.send()
	a.event()
}

// event counts an event and reports it to the suite.
func (a *Responses) event() {
	a.mu.Lock()
	a.events++
	n, tell := a.events, a.onEvent
	a.mu.Unlock()
	if tell != nil {
		tell(n)
	}
}

// tell calls fn at each later event, with its number from 1.
func (a *Responses) tell(fn func(n int)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.events, a.onEvent = 0, fn
}

// keep withholds later responses for the messages that which selects.
func (a *Responses) keep(which func(id string) bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.keeps = which
}

func (a *Responses) omit(ids ...string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, id := range ids {
		a.omitted[id] = true
	}
}

// release sends the withheld responses for the messages that which selects. The order is random,
// unless the protocol keeps the order of requests.
func (a *Responses) release(r *rand.Rand, which func(id string) bool) {
	a.mu.Lock()
	var now []response
	a.kept = slices.DeleteFunc(a.kept, func(one response) bool {
		free := slices.ContainsFunc(one.ids, which)
		if free {
			now = append(now, one)
		}
		return free
	})
	if !a.inOrder {
		r.Shuffle(len(now), func(i, k int) { now[i], now[k] = now[k], now[i] })
	}
	a.mu.Unlock()
	for _, one := range now {
		a.sendNow(one)
	}
}

func (a *Responses) drop() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.kept, a.unmentioned = nil, 0
}

// confirms reports whether a response that confirms the message was sent.
func (a *Responses) confirms(id string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.given[id]
}

// waiting returns the number of messages that arrived and got no response.
func (a *Responses) waiting() (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, one := range a.kept {
		n += len(one.ids)
	}
	return n + a.unmentioned
}
