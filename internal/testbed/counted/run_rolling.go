package counted

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// stopLimit is how long a process may take to exit after SIGTERM.
const stopLimit = shutdownTimeout + 5*time.Second

// burst is how many orders are sent right before a stop, so that the process holds more than it can
// handle at once.
const burst = 60

// Rolling deploys again and again under load: it stops one consumer with SIGTERM and starts another
// in its place. Some get SIGKILL instead.
//
// A stop ends in time, and no message that the process had acknowledged is redelivered. A log may
// redeliver only records behind one that the process left unsettled. After a SIGKILL at most
// Transport.Window messages are redelivered.
var Rolling = Run{Name: "rolling", play: func(s *stage) error {
	s.book.lanes = 200
	s.assign = func(a *assignment, _ int) { a.Most = 60 * time.Millisecond }
	if err := s.start(consumers); err != nil {
		return err
	}
	load := s.flow(s.rate(50, 100), s.sendNew)
	var stopped, killed []int // process ids
	stops, kills := sized(8, 30), sized(3, 10)
	for n := range stops + kills {
		w, err := s.pick(anyWorker)
		if err != nil {
			return err
		}
		had, err := s.effects()
		if err != nil {
			return err
		}
		if err := s.until("the load is worked on", 30*time.Second, func() (bool, error) {
			now, err := s.effects()
			return now > had+5, err
		}); err != nil {
			return err
		}
		if n*kills/(stops+kills) < (n+1)*kills/(stops+kills) {
			killed = append(killed, w.PID())
			s.crew.Kill(w)
			s.verdict.fault("SIGKILL at a " + randomly)
			continue
		}
		stopped = append(stopped, w.PID())
		if err := s.sendNew(burst); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(s.Context(), stopLimit)
		took, err := s.crew.Stop(ctx, w)
		cancel()
		s.verdict.fault("SIGTERM")
		s.verdict.figure("slowest stop in s", took.Seconds())
		if err != nil {
			s.verdict.breaks("%v", err)
			s.crew.Kill(w)
		}
		if _, err := s.crew.Add(s.Context(), w.Number); err != nil {
			return fmt.Errorf("replacing a stopped worker: %w", err)
		}
	}
	if err := load.end(); err != nil {
		return err
	}
	if err := s.settle(); err != nil {
		return err
	}
	s.judgeAgain(stopped, killed)
	s.verdict.figure("deliveries given back", float64(s.witness.givenBack()))
	return nil
}}

// judgeAgain counts redeliveries after a process acknowledged the message and ended.
func (s *stage) judgeAgain(stopped, killed []int) {
	behind := 0
	for _, pid := range stopped {
		n, excused, keys := s.witness.cameAgain(pid)
		behind += excused
		if n > 0 {
			s.verdict.breaks("process %d stopped in good order, and %d deliveries that it had acknowledged came again, such as %s:\n%s", pid, n, keys[0],
				strings.Join(s.witness.story(keys[0]), "\n"))
		}
	}
	if behind > 0 {
		s.verdict.figure("deliveries acknowledged behind an unsettled one that came again after a stop", float64(behind))
	}
	for _, pid := range killed {
		n, excused, _ := s.witness.cameAgain(pid)
		s.verdict.figure("most acknowledged deliveries that came again after a SIGKILL", float64(n+excused))
		if n+excused > s.transport.Window && s.transport.Window > 0 {
			s.verdict.breaks("%d deliveries that the killed process %d had acknowledged came again, the window is %d", n+excused, pid, s.transport.Window)
		}
	}
}
