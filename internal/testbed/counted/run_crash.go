package counted

import (
	"context"
	"time"

	"github.com/pawl-go/pawl/internal/pace"
)

// Crash kills the broker while a relay publishes and consumers consume, and starts it again on its
// data. No confirmed message is lost, and consumers resume by themselves.
var Crash = Run{Name: "broker", alone: true, lacks: sinkless, play: func(s *stage) error {
	broker, ok := s.queue.Broker.(Mortal)
	if !ok {
		s.verdict.needs(false, "the broker cannot be killed: it is no counted.Mortal")
		return nil
	}
	s.assign = func(a *assignment, number int) { a.Relay = number == 1 }
	if err := s.start(3); err != nil {
		return err
	}
	load := s.flow(s.rate(40, 100), s.appendNew)
	if err := s.consumes("before the first crash", s.appendNew); err != nil {
		return err
	}
	for range sized(3, 10) {
		pace.Sleep(s.Context(), time.Duration(500+s.random.IntN(1500))*time.Millisecond)
		if err := s.crash(broker); err != nil {
			return err
		}
	}
	if err := load.end(); err != nil {
		return err
	}
	return s.settle()
}}

func sinkless(Transport) string {
	if !publishes {
		return "its Opener has no Sink"
	}
	return ""
}

// recoverWithin is how long consumers may take to resume.
const recoverWithin = 30 * time.Second

// crash kills the broker, starts it again, and requires that consumers resume.
func (s *stage) crash(broker Mortal) error {
	broker.Kill()
	s.verdict.fault("SIGKILL of the broker")
	pace.Sleep(s.Context(), time.Duration(s.random.IntN(1000))*time.Millisecond)
	ctx, cancel := context.WithTimeout(s.Context(), time.Minute)
	defer cancel()
	if err := broker.Start(ctx); err != nil {
		return err
	}
	return s.consumes("after a crash of the broker", s.appendNew)
}

// consumes requires that consumers, left alone, receive a message from now on and that it takes
// effect. It sends an order for that. An older waiting order counts as well.
func (s *stage) consumes(when string, put func(n int) error) error {
	before := time.Now()
	if err := put(1); err != nil {
		return err
	}
	for {
		n, err := s.count("select count(*) from orders where key = any($1)", s.witness.receivedSince(before))
		if err != nil {
			return err
		}
		took := time.Since(before)
		if n > 0 {
			s.verdict.figure("slowest return to work in s", took.Seconds())
			return nil
		}
		if took > recoverWithin {
			s.verdict.breaks("%s: nothing was delivered and took effect in %v", when, took.Round(time.Second))
			return nil
		}
		select {
		case err := <-s.crew.Failed():
			return err
		case <-time.After(20 * time.Millisecond):
		}
	}
}
