package counted

import (
	"sync/atomic"
	"time"

	"github.com/pawl-go/pawl/internal/pace"
)

// Loss drops acknowledgements and responses of Receive between consumer and source. The source
// still counts the lost deliveries as the process's, so processes are killed and their successors
// get them. At the end all are replaced by processes that lose nothing.
var Loss = Run{Name: "ack loss", play: func(s *stage) error {
	var healthy atomic.Bool
	s.assign = func(a *assignment, _ int) {
		if !healthy.Load() {
			a.LoseAcks, a.LoseReceives = 0.1, 0.1
			if *full {
				a.LoseAcks, a.LoseReceives = 0.05, 0.05
			}
		}
	}
	if err := s.start(consumers); err != nil {
		return err
	}
	orders := sized(300, 5000)
	all, kills := s.copied(orders), sized(6, 40)
	for n := range kills {
		if err := s.send(all[len(all)*n/kills : len(all)*(n+1)/kills]...); err != nil {
			return err
		}
		w, err := s.pick(anyWorker)
		if err != nil {
			return err
		}
		if err := s.killAt(w, randomly, func() error { return nil }); err != nil {
			return err
		}
	}
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); pace.Sleep(s.Context(), 20*time.Millisecond) {
		if _, _, lost := s.witness.counts(); lost > 0 { // slow consumers may not have started
			break
		}
	}
	healthy.Store(true)
	for _, w := range s.crew.Workers() {
		s.crew.Doom(w)
		s.crew.Kill(w)
	}
	err := s.settle()
	_, again, lost := s.witness.counts()
	s.verdict.figure("receipts and deliveries lost", float64(lost))
	s.verdict.needs(lost > 0, "nothing was lost on the way")
	s.verdict.needs(again > 2*orders, "nothing came again")
	return err
}}
