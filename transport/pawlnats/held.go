package pawlnats

import (
	"sync"

	"github.com/pawl-go/pawl/transport/internal/heart"
)

// arrival is our Delivery.Handle: what one delivery of one message needs to be settled.
type arrival struct {
	owner    *Source
	reply    string // the subject of its acknowledgement
	sequence uint64
	identity identity
	heart    *heart.Heart[string]
}

// handles are the deliveries that are held, the last one of each message.
type handles struct {
	mu         sync.Mutex
	bySequence map[uint64]*arrival
}

func (h *handles) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.bySequence)
}

// take holds a delivery, and returns an earlier one of the same message that it takes the place of.
func (h *handles) take(a *arrival) (before *arrival) {
	h.mu.Lock()
	defer h.mu.Unlock()
	before = h.bySequence[a.sequence]
	h.bySequence[a.sequence] = a
	return before
}

// drop lets go of deliveries, and returns those that were still held.
func (h *handles) drop(as []*arrival) (live []*arrival) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, a := range as {
		if h.bySequence[a.sequence] == a {
			delete(h.bySequence, a.sequence)
			live = append(live, a)
		}
	}
	return live
}

func (h *handles) all() (as []*arrival) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, a := range h.bySequence {
		as = append(as, a)
	}
	return as
}

// hold keeps a delivery from now on. One of the same message that was held before is lost: its AckWait passed, and it was delivered again.
func (s *Source) hold(a *arrival) (lost int) {
	if before := s.held.take(a); before != nil {
		before.heart.LetGo([]string{before.reply})
		lost = 1
	}
	a.heart.Hold(a.reply, noLimit)
	return lost
}

// letGo stops extending, and returns those that were still held. The channels tell when extensions under way are over.
func (s *Source) letGo(as []*arrival) (live []*arrival, stored []<-chan struct{}) {
	live = s.held.drop(as)
	byHeart := map[*heart.Heart[string]][]string{}
	for _, a := range live {
		byHeart[a.heart] = append(byHeart[a.heart], a.reply)
	}
	for h, replies := range byHeart {
		if under := h.LetGo(replies); under != nil {
			stored = append(stored, under)
		}
	}
	return live, stored
}

// letGoAll extends nothing any more, and returns how many were held.
func (s *Source) letGoAll() int {
	live, _ := s.letGo(s.held.all())
	return len(live)
}
