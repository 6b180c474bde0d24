package counted

import (
	"slices"
	"time"

	"github.com/pawl-go/pawl/internal/testbed/fleet"
)

// consumerPoints are the fault points before and after each step of the consumer's pipeline.
var consumerPoints = []string{"consumer.claim.after", "consumer.handle.before", "consumer.handle.after", "consumer.commit.before", "consumer.commit.after",
	"consumer.ack.before"}

// storedPoints are the fault points of the retry of a stored delivery.
var storedPoints = []string{"job.hold.before", "job.handle.before", "job.commit.before", "job.commit.after"}

const (
	randomly   = "random moment"
	atAPoint   = "SIGKILL at " // followed by the name of the point
	killWithin = 2 * time.Second
)

// plan returns n moments for kills. Each round contains every point and two random moments,
// shuffled by the seed.
func (s *stage) plan(n int, points ...string) (all []string) {
	for len(all) < n {
		turn := slices.Concat([]string{randomly, randomly}, points)
		s.random.Shuffle(len(turn), func(i, j int) { turn[i], turn[j] = turn[j], turn[i] })
		all = append(all, turn...)
	}
	return all[:n]
}

// pick waits for a running worker that choose accepts, and marks it to be killed.
func (s *stage) pick(choose func(*fleet.Worker) bool) (w *fleet.Worker, err error) {
	err = s.until("a worker works", time.Minute, func() (bool, error) {
		up := slices.DeleteFunc(s.crew.Workers(), func(w *fleet.Worker) bool { return !choose(w) || s.crew.State(w) != "up" })
		if len(up) > 0 {
			w = up[s.random.IntN(len(up))]
			s.crew.Doom(w)
		}
		return len(up) > 0, nil
	})
	return w, err
}

func anyWorker(*fleet.Worker) bool { return true }

// killAt arms a worker and starts the load. If the worker does not reach the point within
// killWithin, killAt kills it where it is. The fleet replaces it.
func (s *stage) killAt(w *fleet.Worker, point string, load func() error) error {
	armed := point != randomly && s.crew.Arm(w, point, "kill")
	if err := load(); err != nil {
		return err
	}
	switch {
	case armed && s.crew.DiesWithin(s.Context(), w, killWithin):
		s.verdict.fault(atAPoint + point)
		return nil
	case !armed:
		time.Sleep(time.Duration(s.random.IntN(100)) * time.Millisecond)
	}
	s.crew.Kill(w)
	s.verdict.fault("SIGKILL at a " + randomly)
	return nil
}
