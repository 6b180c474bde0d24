package counted

import (
	"slices"
	"time"

	"github.com/pawl-go/pawl/internal/testbed/fleet"
)

// consumerPoints are where a consumer is killed: on each side of every arrow of its pipeline.
var consumerPoints = []string{"consumer.claim.after", "consumer.handle.before", "consumer.handle.after", "consumer.commit.before", "consumer.commit.after",
	"consumer.ack.before"}

// storedPoints are where it is killed while it retries what was stored.
var storedPoints = []string{"job.hold.before", "job.handle.before", "job.commit.before", "job.commit.after"}

const (
	randomly   = "random moment"
	atAPoint   = "SIGKILL at " // and its name
	killWithin = 2 * time.Second
)

// plan chooses n moments for kills: each point and two random moments in turn, in an order that the seed decides.
func (s *stage) plan(n int, points ...string) (all []string) {
	for len(all) < n {
		turn := slices.Concat([]string{randomly, randomly}, points)
		s.random.Shuffle(len(turn), func(i, j int) { turn[i], turn[j] = turn[j], turn[i] })
		all = append(all, turn...)
	}
	return all[:n]
}

// pick waits for a worker that works, one of those that choose allows, and dooms it.
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

// killAt arms a worker, lets load happen, and kills the worker where it is if it does not come by the point. The fleet replaces it.
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
