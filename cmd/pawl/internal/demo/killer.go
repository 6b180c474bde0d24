package demo

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// points are where a worker is made to die, beside random moments: on each side of every arrow of the pipeline.
var points = []string{"flow.claim.after", "flow.handle.before", "flow.handle.after", "flow.commit.before", "flow.commit.after", "flow.ack.before"}

// randomly stands for a SIGKILL that arrives whenever it arrives.
const randomly = "random moment"

// killPatience is how long an armed worker may take to reach its point before it is killed where it is.
const killPatience = 2 * time.Second

// A Kill is one SIGKILL.
type Kill struct {
	Point   string  `json:"point"`
	Worker  int     `json:"worker"`
	Seconds float64 `json:"seconds"` // after the start
}

// A killer spreads its kills over the run: the n-th when the n-th share of the orders took effect.
type killer struct {
	fleet  *fleet
	random *rand.Rand
	plan   []string
	began  time.Time

	mu    sync.Mutex
	done  []Kill
	moved chan struct{} // closed and replaced at each kill
}

// newKiller plans kills that visit each point and a random moment in turn, in an order the seed decides. It takes a
// generator of its own, because the producer draws at the same time.
func newKiller(random *rand.Rand, f *fleet, kills int) *killer {
	k := &killer{fleet: f, random: rand.New(rand.NewPCG(random.Uint64(), 1)), began: time.Now(), moved: make(chan struct{})}
	for len(k.plan) < kills {
		round := append([]string{randomly, randomly}, points...)
		k.random.Shuffle(len(round), func(i, j int) { round[i], round[j] = round[j], round[i] })
		k.plan = append(k.plan, round...)
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

// step kills the next worker if enough has happened since the last, or if nothing more will: what a broken promise has
// lost must not keep the run from ending.
func (k *killer) step(ctx context.Context, effects, of int, idle bool) {
	n := k.killed()
	if n == len(k.plan) || !idle && effects*2*(len(k.plan)+1) < of*(2*n+1) {
		return
	}
	w := k.fleet.pick(k.random)
	if w == nil {
		return // the last one killed is not up yet
	}
	point := k.plan[n]
	if point == randomly || !k.fleet.killAt(ctx, w, point, killPatience) {
		point = randomly
		k.fleet.kill(w)
	}
	if ctx.Err() != nil {
		return
	}
	k.mu.Lock()
	k.done = append(k.done, Kill{point, w.number, round(time.Since(k.began).Seconds())})
	close(k.moved)
	k.moved = make(chan struct{})
	k.mu.Unlock()
}

// caughtUp waits until n kills are done.
func (k *killer) caughtUp(ctx context.Context, n int) error {
	for {
		k.mu.Lock()
		enough, moved := len(k.done) >= n, k.moved
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
