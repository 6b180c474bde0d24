package pawlnats

import (
	"sync"

	"github.com/pawl-go/pawl/transport/internal/heart"
)

// arrival is the source's Delivery.Handle.
type arrival struct {
	owner    *Source
	reply    string // subject for its acknowledgement
	sequence uint64
	identity identity
	heart    *heart.Heart[string]
}

// handles holds the latest delivery of each held message.
type handles struct {
	mu         sync.Mutex
	bySequence map[uint64]*arrival
}

func (h *handles) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.bySequence)
}

// take stores a delivery, and returns the earlier delivery of the same message that it replaces.
func (h *handles) take(a *arrival) (before *arrival) {
	h.mu.Lock()
	defer h.mu.Unlock()
	before = h.bySequence[a.sequence]
	h.bySequence[a.sequence] = a
	return before
}

// drop removes deliveries, and returns those that were still held.
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

// hold extends a delivery from now on. An earlier delivery of the same message is lost: its AckWait
// passed, and JetStream delivered it again.
func (s *Source) hold(a *arrival) (lost int) {
	if before := s.held.take(a); before != nil {
		before.heart.LetGo([]string{before.reply})
		lost = 1
	}
	a.heart.Hold(a.reply, noLimit)
	return lost
}

// letGo stops extending deliveries, and returns those that were still held. Each channel is closed
// once the extensions already being sent are done.
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

func (s *Source) letGoAll() int {
	live, _ := s.letGo(s.held.all())
	return len(live)
}
