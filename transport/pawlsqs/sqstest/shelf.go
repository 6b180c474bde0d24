package sqstest

import "container/list"

// A shelf orders the messages of a queue, in groups. While a message of a group is in flight, no
// other of that group is handed out, except by the receive that took it. One receive may return
// several of one group, in order ("Using the Amazon SQS message group ID"). In a standard queue
// each message is a group of its own.
type shelf struct {
	groups  map[string]*group // by MessageGroupId; nil in a standard queue
	open    list.List         // of *group: those that may be received from, longest open first
	serving *group            // of the receive in progress
}

type group struct {
	id       string
	messages list.List // of *message, in the order of their sends
	inFlight int
	opened   *list.Element // in shelf.open; nil if not open
}

func (s *shelf) stored(m *message) {
	if m.lane = s.groups[m.group]; m.lane == nil {
		m.lane = &group{id: m.group}
		if s.groups != nil {
			s.groups[m.group] = m.lane
		}
	}
	m.waiting = m.lane.messages.PushBack(m)
}

func (s *shelf) removed(m *message) (opened bool) {
	m.lane.messages.Remove(m.waiting)
	return s.review(m.lane)
}

func (s *shelf) handedOut(m *message) {
	m.lane.inFlight++
	s.review(m.lane)
}

// review opens or closes a group after a change. It reports whether it was opened, so that a
// waiting poll may now succeed.
func (s *shelf) review(g *group) (opened bool) {
	head := g.messages.Front()
	may := g.inFlight == 0 && head != nil && head.Value.(*message).state == ready
	switch {
	case may && g.opened == nil:
		g.opened = s.open.PushBack(g)
		return true
	case !may && g.opened != nil:
		s.open.Remove(g.opened)
		g.opened = nil
	}
	if head == nil {
		delete(s.groups, g.id)
	}
	return false
}

// next returns the next message to hand out, or nil. It takes as many of one group as it can before
// it takes another group, which pick chooses among the n that are open.
func (s *shelf) next(pick func(n int) int) *message {
	if g := s.serving; g != nil {
		for e := g.messages.Front(); e != nil; e = e.Next() {
			if m := e.Value.(*message); m.state == ready {
				return m
			} else if m.state != inFlight {
				break // delayed: later messages of the group must wait
			}
		}
	}
	if s.serving = nil; s.open.Len() == 0 {
		return nil
	}
	e := s.open.Front()
	for n := pick(s.open.Len()); n > 0; n-- {
		e = e.Next()
	}
	s.serving = e.Value.(*group)
	return s.serving.messages.Front().Value.(*message)
}

// served ends the receive that called next.
func (s *shelf) served() { s.serving = nil }
