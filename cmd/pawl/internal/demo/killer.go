package demo

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// points are the crash points of a worker, besides random moments: before and after every step of
// the pipeline.
var points = []string{"consumer.claim.after", "consumer.handle.before", "consumer.handle.after", "consumer.commit.before", "consumer.commit.after", "consumer.ack.before"}

// hopPoints are the crash points between the first queue and the second.
var hopPoints = []string{"outbox.publish.before", "outbox.publish.after", "job.finish.before"}

// Randomly is the Point of a SIGKILL at a random moment.
const Randomly = "random moment"

// killPatience is how long an armed worker may take to reach its point. After that it is killed
// where it is.
const killPatience = 2 * time.Second

// A Kill is one SIGKILL.
type Kill struct {
	Point   string  `json:"point"`
	Worker  int     `json:"worker"`
	Seconds float64 `json:"seconds"` // after the first message was sent
}

// A killer spreads its kills over the run: the n-th when the n-th share of the orders took effect.
type killer struct {
	crew   *crew
	random *rand.Rand
	plan   []string
	began  time.Time

	mu    sync.Mutex
	begun int // kills done or started
	done  []Kill
	moved chan struct{} // closed and replaced when begun grows
}

// newKiller plans kills that visit each point and random moments in turn, in an order from the
// seed. It has its own random generator, because the producer uses the other one concurrently.
func newKiller(random *rand.Rand, c *crew, kills int, more ...string) *killer {
	k := &killer{crew: c, random: rand.New(rand.NewPCG(random.Uint64(), 1)), began: time.Now(),
		done: []Kill{}, moved: make(chan struct{})}
	for len(k.plan) < kills {
		turn := slices.Concat([]string{Randomly, Randomly}, points, more)
		k.random.Shuffle(len(turn), func(i, j int) { turn[i], turn[j] = turn[j], turn[i] })
		k.plan = append(k.plan, turn...)
	}
	k.plan = k.plan[:kills]
	return k
}

func (k *killer) killed() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.done)
}

func (k *killer) finished() bool { return k.killed() == len(k.plan) }

// last is the point of the latest kill, or "" before the first.
func (k *killer) last() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.done) == 0 {
		return ""
	}
	return k.done[len(k.done)-1].Point
}

// step kills the next worker if enough orders took effect since the last kill, or if the queue is
// empty. Lost messages therefore cannot keep the run from ending. If all is sent and the queue is
// empty, no worker would reach a point, so the kill is at a random moment.
func (k *killer) step(ctx context.Context, effects, of int, empty, allSent bool) {
	n := k.killed()
	if n == len(k.plan) || !empty && effects*2*(len(k.plan)+1) < of*(2*n+1) {
		return
	}
	w := k.crew.Pick(k.random)
	if w == nil {
		return // the replacement of the last one is not ready yet
	}
	point := k.plan[n]
	armed := point != Randomly && !(empty && allSent) && k.crew.Arm(w, point, "kill")
	k.begin()
	if !armed || !k.crew.DiesWithin(ctx, w, killPatience) {
		point = Randomly
		k.crew.Kill(w)
	}
	if ctx.Err() != nil {
		return
	}
	k.mu.Lock()
	k.done = append(k.done, Kill{point, w.Number, round(time.Since(k.began).Seconds())})
	k.mu.Unlock()
}

// begin lets the producer send the next portion, so that the armed worker has work.
func (k *killer) begin() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.begun++
	close(k.moved)
	k.moved = make(chan struct{})
}

// begunAll waits until n kills have started.
func (k *killer) begunAll(ctx context.Context, n int) error {
	for {
		k.mu.Lock()
		enough, moved := k.begun >= n, k.moved
		k.mu.Unlock()
		if enough {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
