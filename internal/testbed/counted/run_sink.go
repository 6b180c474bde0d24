package counted

import (
	"strings"
	"time"

	"github.com/pawl-go/pawl/internal/pace"
	"github.com/pawl-go/pawl/internal/testbed/checker"
	"github.com/pawl-go/pawl/internal/testbed/fleet"
)

// relayPoints are the fault points of a relay: around the call of the sink, and before it finishes
// an event.
var relayPoints = []string{"outbox.publish.before", "outbox.publish.after", "job.finish.before"}

// Sink kills relays around Publish, and the broker if it can be killed. No event is lost. The first
// deliveries of each aggregate keep the order in which they were appended, and the receiver absorbs
// duplicates.
var Sink = Run{Name: "sink", alone: true, lacks: sinkless, play: func(s *stage) error {
	const relays = 2
	s.book.lanes = 20
	s.assign = func(a *assignment, number int) { a.Relay = number <= relays }
	if err := s.start(relays + 1); err != nil {
		return err
	}
	load := s.flow(s.rate(60, 200), s.appendNew)
	broker, mortal := s.queue.Broker.(Mortal)
	crashes := 0
	if mortal {
		crashes = sized(2, 10)
	}
	plan := s.plan(sized(8, 20), relayPoints...)
	for n, point := range plan {
		w, err := s.pick(func(w *fleet.Worker) bool { return w.Number <= relays })
		if err != nil {
			return err
		}
		pause := time.Duration(s.random.IntN(500)) * time.Millisecond
		if err := s.killAt(w, point, func() error { pace.Sleep(s.Context(), pause); return nil }); err != nil {
			return err
		}
		if n*crashes/len(plan) < (n+1)*crashes/len(plan) {
			if err := s.crash(broker); err != nil {
				return err
			}
		}
	}
	if err := load.end(); err != nil {
		return err
	}
	err := s.settle()
	s.judgeStore()
	// A relay killed there publishes its events again. The broker may drop the second publication.
	s.verdict.needs(s.verdict.faults(atAPoint+"outbox.publish.after")+s.verdict.faults(atAPoint+"job.finish.before") > 0, "no relay was killed after it had published")
	return err
}}

// judgeStore requires that the broker stores the first publications of each aggregate in order.
func (s *stage) judgeStore() {
	steps, log := s.witness.inStore()
	if !log && !s.transport.Sequential {
		return // deliveries do not show the order in which the broker stores events
	}
	late := checker.OutOfOrder(steps)
	for _, step := range late[:min(3, len(late))] {
		key, next := keyOf(step.Line, step.Number), keyOf(step.Line, step.Number+1)
		s.verdict.breaks("%d events were published after later ones of their aggregate, such as %s:\n%s\nThe one behind it:\n%s", len(late), key,
			strings.Join(s.witness.story(key), "\n"), strings.Join(s.witness.story(next), "\n"))
	}
}
