package pawlnats

import (
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

// hold extends a delivery from now on. An earlier delivery of the same message is lost: its AckWait
// passed, and JetStream delivered it again.
func (s *Source) hold(a *arrival) (lost int) {
	if before, held := s.held.Swap(a.sequence, a); held {
		before.(*arrival).heart.LetGo([]string{before.(*arrival).reply})
		lost = 1
	}
	a.heart.Hold(a.reply, noLimit)
	return lost
}

// letGo stops extending deliveries, and returns those that were still held. Each channel is closed
// once the extensions already being sent are done.
func (s *Source) letGo(as []*arrival) (live []*arrival, stored []<-chan struct{}) {
	byHeart := map[*heart.Heart[string]][]string{}
	for _, a := range as {
		if s.held.CompareAndDelete(a.sequence, a) {
			live = append(live, a)
			byHeart[a.heart] = append(byHeart[a.heart], a.reply)
		}
	}
	for h, replies := range byHeart {
		if under := h.LetGo(replies); under != nil {
			stored = append(stored, under)
		}
	}
	return live, stored
}

func (s *Source) letGoAll() int {
	live, _ := s.letGo(s.allHeld())
	return len(live)
}

func (s *Source) allHeld() (as []*arrival) {
	s.held.Range(func(_, a any) bool {
		as = append(as, a.(*arrival))
		return true
	})
	return as
}
