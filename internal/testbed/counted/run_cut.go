package counted

import (
	"context"
	"time"

	"github.com/pawl-go/pawl/internal/pace"
	"github.com/pawl-go/pawl/internal/testbed/fleet"
)

// Cut drops all packets between one consumer and the broker for longer than the session, without
// closing a connection. The broker redelivers the messages to another consumer. When the network is
// back, the stale consumer's delayed packets arrive too.
var Cut = Run{Name: "cut", proxied: true, play: func(s *stage) error {
	return s.silence(true, func(*fleet.Worker) (restore func()) { return s.proxy.Freeze() })
}}

// Freeze stops a consumer with SIGSTOP for longer than its session, then continues it. Half of the
// stops are at a fault point. The stopped consumer's open transactions block its lanes, so an
// ordered transport may have to wait for it.
var Freeze = Run{Name: "freeze", play: func(s *stage) error {
	return s.silence(!s.transport.Ordered, func(w *fleet.Worker) (restore func()) {
		point := consumerPoints[s.random.IntN(len(consumerPoints))]
		if s.random.IntN(2) == 0 && s.crew.Arm(w, point, "stop") {
			pace.Sleep(s.Context(), 300*time.Millisecond)
		}
		s.crew.Freeze(w)
		return func() {
			for range 5 { // the worker may reach the armed point only after Wake
				s.crew.Wake(w)
				s.crew.Arm(w, point, "delay:1ns")
				pace.Sleep(s.Context(), 50*time.Millisecond)
			}
		}
	})
}}

// silence plays a load on two consumers and silences the first again and again. begin silences it.
// goesOn is whether the other consumer must go on meanwhile.
func (s *stage) silence(goesOn bool, begin func(*fleet.Worker) (restore func())) error {
	s.assign = func(a *assignment, number int) {
		a.Least, a.Most = 20*time.Millisecond, 80*time.Millisecond
		if number == 1 && s.proxy != nil {
			a.Spec.Addr = s.front
		}
	}
	if err := s.start(1); err != nil {
		return err
	}
	first := s.crew.Workers()[0]
	ctx, cancel := context.WithTimeout(s.Context(), time.Minute)
	defer cancel()
	if _, err := s.crew.Add(ctx, 2); err != nil {
		return err
	}
	load := s.flow(s.rate(60, 100), s.sendNew)
	long := s.transport.Session*3/2 + time.Second
	for range sized(2, 10) {
		if err := s.consumes("with both consumers", s.sendNew); err != nil {
			return err
		}
		pace.Sleep(s.Context(), time.Duration(500+s.random.IntN(500))*time.Millisecond)
		s.untilHolds(first)
		restore := begin(first)
		s.verdict.fault("silence")
		pace.Sleep(s.Context(), long)
		var err error
		if goesOn {
			err = s.consumes("while a consumer is silent", s.sendNew)
		}
		restore()
		if err != nil {
			return err
		}
	}
	if err := s.consumes("after the last silence", s.sendNew); err != nil {
		return err
	}
	if err := load.end(); err != nil {
		return err
	}
	err := s.settle()
	taken := s.witness.takeovers(first.PID())
	s.verdict.figure("orders of the silent consumer that went elsewhere", float64(taken))
	s.verdict.needs(taken > 0, "nothing that the silent consumer held went to another one")
	return err
}

// untilHolds waits up to 5 s until a worker has an unsettled message.
func (s *stage) untilHolds(w *fleet.Worker) {
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end) && !s.witness.holds(w.PID()); {
		pace.Sleep(s.Context(), time.Millisecond)
	}
}
