package transporttest

import (
	"math/rand/v2"
	"slices"
	"sync"
)

// Answers decides when a destination answers, and in which order. The destination tells it of each
// message that arrives and hands it each answer to the sink; the suite lets answers go, keeps them
// back, or never sends them. All methods may be called at once.
type Answers struct {
	inOrder bool
	sending sync.Mutex // held while an answer is sent: they go one after another

	mu          sync.Mutex
	keeps       func(id string) bool
	omitted     map[string]bool
	kept        []answer
	given       map[string]bool // ids that a sent answer confirms
	unmentioned int             // messages whose answer was dropped, as it is about omitted ones only
	events      int
	onEvent     func(n int)
}

// An answer is what a destination says of one message or of several.
type answer struct {
	ids, confirmed []string
	send           func()
}

func newAnswers(inOrder bool) *Answers {
	return &Answers{inOrder: inOrder, omitted: map[string]bool{}, given: map[string]bool{}}
}

// Arrived notes that a message has reached the destination.
func (a *Answers) Arrived() { a.event() }

// Omits reports whether the answer must not mention a message. Ask it if one answer is about
// several messages. An answer that is about omitted messages only is dropped by Send.
func (a *Answers) Omits(id string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.omitted[id]
}

// Send sends an answer that is about the messages ids and confirms some of them. It calls send at
// most once: now, later from another goroutine, or never. send must not block, and does nothing if
// its connection is gone.
func (a *Answers) Send(ids, confirmed []string, send func()) {
	a.mu.Lock()
	omitted := !slices.ContainsFunc(ids, func(id string) bool { return !a.omitted[id] })
	keep := a.keeps != nil && slices.ContainsFunc(ids, a.keeps) || a.inOrder && len(a.kept) > 0
	one := answer{ids, confirmed, send}
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

func (a *Answers) sendNow(one answer) {
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

// event tells the suite that something has happened.
func (a *Answers) event() {
	a.mu.Lock()
	a.events++
	n, tell := a.events, a.onEvent
	a.mu.Unlock()
	if tell != nil {
		tell(n)
	}
}

// tell calls fn at each event from now on, with its number from 1.
func (a *Answers) tell(fn func(n int)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.events, a.onEvent = 0, fn
}

// keep keeps back the answers about some messages from now on.
func (a *Answers) keep(which func(id string) bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.keeps = which
}

func (a *Answers) omit(ids ...string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, id := range ids {
		a.omitted[id] = true
	}
}

// release sends the answers that were kept back about some messages, in any order, or in theirs if
// the protocol has no other.
func (a *Answers) release(r *rand.Rand, which func(id string) bool) {
	a.mu.Lock()
	var now []answer
	a.kept = slices.DeleteFunc(a.kept, func(one answer) bool {
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

// drop forgets what was kept back.
func (a *Answers) drop() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.kept, a.unmentioned = nil, 0
}

// confirms reports whether an answer that confirms a message was sent.
func (a *Answers) confirms(id string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.given[id]
}

// waiting returns how many messages have arrived that no sent answer is about.
func (a *Answers) waiting() (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, one := range a.kept {
		n += len(one.ids)
	}
	return n + a.unmentioned
}
