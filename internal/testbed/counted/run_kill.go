package counted

import "slices"

// Kill sends each order three times. It kills consumers at every fault point of the pipeline and of
// the transport, and at random.
var Kill = Run{Name: "kill", play: func(s *stage) error {
	return s.killConsumers(sized(240, 5000), sized(10, 20), slices.Concat(consumerPoints, s.transport.Points))
}}

// Batch does the same for a handler that takes many deliveries in one transaction.
var Batch = Run{Name: "batch", play: func(s *stage) error {
	s.assign = func(a *assignment, _ int) { a.Batch = true }
	return s.killConsumers(sized(240, 5000), sized(6, 20), slices.Concat(consumerPoints, s.transport.Points))
}}

// consumers is the number of processes that share a queue.
const consumers = 3

func (s *stage) killConsumers(orders, kills int, points []string) error {
	if err := s.start(consumers); err != nil {
		return err
	}
	all := s.copied(orders)
	for n, point := range s.plan(kills, points...) {
		w, err := s.pick(anyWorker)
		if err != nil {
			return err
		}
		portion := all[len(all)*n/kills : len(all)*(n+1)/kills]
		if err := s.killAt(w, point, func() error { return s.send(portion...) }); err != nil {
			return err
		}
	}
	err := s.settle()
	_, again, _ := s.witness.counts()
	s.verdict.needs(s.verdict.faults(atAPoint) > 0, "no consumer was killed at a named point")
	s.verdict.needs(again > 2*orders, "nothing that a killed consumer held came again")
	return err
}
