package counted

import "slices"

// Order kills consumers while handlers fail. A failed delivery is stored and retried, and later
// ones of its lane wait. Every run of an ordered transport requires the order. This run stresses
// it.
var Order = Run{Name: "order",
	lacks: func(tr Transport) string {
		if !tr.Ordered {
			return "its source keeps no order"
		}
		return ""
	},
	play: func(s *stage) error {
		s.book.lanes = 20
		s.assign = func(a *assignment, _ int) { a.Failures = 0.1 }
		err := s.killConsumers(sized(300, 5000), sized(10, 40), slices.Concat(consumerPoints, storedPoints, s.transport.Points))
		s.verdict.needs(s.witness.count("retryable") > 0, "no handler failed")
		return err
	}}
