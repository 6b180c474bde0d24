package counted

import (
	"context"
	"time"

	"github.com/pawl-go/pawl/internal/pace"
	"github.com/pawl-go/pawl/internal/testbed/fleet"
)

// Cut makes the network between one consumer and the broker silent in both directions, for longer than the session: no connection is closed, no packet
// arrives. The broker hands its messages to another consumer. When the network is back the zombie's late words arrive too.
var Cut = Run{Name: "cut", proxied: true, play: func(s *stage) error {
	return s.silence(true, func(*fleet.Worker) (restore func()) { return s.proxy.Freeze() })
}}

// Freeze stops a consumer with SIGSTOP for longer than its session, half of the time at a point of its pipeline, and lets it go on. Meanwhile its
// transactions stay open and hold their lanes back, so an ordered transport may have to wait for it.
var Freeze = Run{Name: "freeze", play: func(s *stage) error {
	return s.silence(!s.transport.Ordered, func(w *fleet.Worker) (restore func()) {
		point := consumerPoints[s.random.IntN(len(consumerPoints))]
		if s.random.IntN(2) == 0 && s.crew.Arm(w, point, "stop") {
			pace.Sleep(s.Context(), 300*time.Millisecond)
		}
		s.crew.Freeze(w)
		return func() {
			for range 5 { // it may come by its point only now
				s.crew.Wake(w)
				s.crew.Arm(w, point, "delay:1ns")
				pace.Sleep(s.Context(), 50*time.Millisecond)
			}
		}
	})
}}

// silence plays a load on two consumers of which the first goes silent again and again. Cut and Freeze differ in how, and in whether the other one
// must go on at once.
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

// untilHolds waits, for a while, until a worker has something in hand.
func (s *stage) untilHolds(w *fleet.Worker) {
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end) && !s.witness.holds(w.PID()); {
		pace.Sleep(s.Context(), time.Millisecond)
	}
}
