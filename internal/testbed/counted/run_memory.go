package counted

import (
	"context"
	"time"

	"github.com/pawl-go/pawl"
)

// Memory makes the broker forget: the queue is replaced by an empty one with the same name, whose
// positions restart. Messages sent afterwards take effect, although their positions may repeat
// earlier ones. The consumers report the loss.
var Memory = Run{Name: "memory",
	lacks: func(tr Transport) string {
		if tr.Forget == nil {
			return "it has no Forget"
		}
		return ""
	},
	play: func(s *stage) error {
		if err := s.start(2); err != nil {
			return err
		}
		for range sized(2, 10) {
			n := sized(100, 500)
			if err := s.sendNew(n); err != nil {
				return err
			}
			want := len(s.book.all())
			if err := s.until("each order took effect", s.patience(), func() (bool, error) {
				n, err := s.effects()
				return n >= want, err
			}); err != nil {
				return err
			}
			before := s.events()
			ctx, cancel := context.WithTimeout(s.Context(), time.Minute)
			err := s.transport.Forget(ctx, s.queue)
			cancel()
			if err != nil {
				return err
			}
			s.verdict.fault("broker forgets")
			if err := s.consumes("after the broker has forgotten", s.sendNew); err != nil {
				return err
			}
			if s.events() == before {
				s.verdict.breaks("the broker has forgotten all, and no consumer reported anything")
			}
		}
		return s.settle()
	}}

// events counts the consumers' events about an unexpected broker.
func (s *stage) events() (n int) {
	for _, kind := range []pawl.EventKind{pawl.EventError, pawl.EventReceiveFailed, pawl.EventHandleLost, pawl.EventAckFailed} {
		n += s.witness.count(kind)
	}
	return n
}
