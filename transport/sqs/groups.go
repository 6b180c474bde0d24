package sqs

import (
	"context"
	"crypto/rand"
	"slices"
	"sync"
	"time"

	"github.com/pawl-go/pawl"
)

// groups keeps the order of a FIFO queue in this process. SQS may answer one receive with several messages of a group, and
// blocks the group for everybody else while one of them is in flight; who of them goes first is left to us:
//
//	poll ─▶ waiting, in order, per group ──▶ out: one of a group ──Ack──────▶ the next of the group
//	                                                             └─Release──▶ the group's others are released as well
//
// Groups go side by side. A poll runs on its own: messages that become free meanwhile need not wait for its end.
type groups struct {
	mu      sync.Mutex
	all     map[string]*group
	order   []*group // as their first message arrived
	waiting int      // messages, in all groups
	poll    *poll    // running, or ended and not yet looked at
	attempt string   // ReceiveRequestAttemptId of the last poll that was not answered
	freed   chan struct{}
}

// A group is what is here of one MessageGroupId. It exists while a message of it is.
type group struct {
	id      string
	out     *arrival // handed out and not settled
	waiting []pawl.Delivery
}

// A poll is one ReceiveMessage in the background.
type poll struct {
	done chan struct{} // closed when the fields below are final
	none bool          // it brought nothing
	late bool          // the context it was started with had ended
	err  error
}

func newGroups() *groups {
	return &groups{all: map[string]*group{}, freed: make(chan struct{}, 1)}
}

// add takes what a poll brought. A message that is waiting already was received again, so its older handle is dead: it is
// answered, to be let go.
func (g *groups) add(ds []pawl.Delivery) (dead []*arrival) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, d := range ds {
		id := handleOf(d).group
		one := g.all[id]
		if one == nil {
			one = &group{id: id}
			g.all[id] = one
			g.order = append(g.order, one)
		}
		one.waiting = slices.DeleteFunc(one.waiting, func(old pawl.Delivery) bool {
			if old.MessageID != d.MessageID {
				return false
			}
			dead = append(dead, handleOf(old))
			g.waiting--
			return true
		})
		one.waiting = append(one.waiting, d)
		g.waiting++
	}
	return dead
}

// take hands out the first of each group that has none out. A message that is not held any more is visible to others, or
// will be: then those behind it may not go first, and are answered as stale, to be released.
func (g *groups) take(max int, held func(*arrival) bool) (ds []pawl.Delivery, stale []*arrival) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, one := range slices.Clone(g.order) {
		if len(ds) == max {
			break
		}
		if one.out != nil || len(one.waiting) == 0 {
			continue
		}
		head := one.waiting[0]
		if !held(handleOf(head)) {
			stale = append(stale, g.empty(one)...)
			continue
		}
		one.out, one.waiting = handleOf(head), one.waiting[1:]
		g.waiting--
		ds = append(ds, head)
	}
	return ds, stale
}

// empty takes all that waits out of a group.
func (g *groups) empty(one *group) (left []*arrival) {
	for _, d := range one.waiting {
		left = append(left, handleOf(d))
	}
	g.waiting -= len(one.waiting)
	one.waiting = nil
	g.forget(one)
	return left
}

// forget removes a group of which nothing is here.
func (g *groups) forget(one *group) {
	if one.out == nil && len(one.waiting) == 0 {
		delete(g.all, one.id)
		g.order = slices.DeleteFunc(g.order, func(other *group) bool { return other == one })
	}
}

// settled frees the groups of messages that were acknowledged.
func (g *groups) settled(as []*arrival) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, a := range as {
		if one := g.all[a.group]; one != nil && one.out == a {
			one.out = nil
			g.forget(one)
		}
	}
	g.tell()
}

// returned frees the groups of messages that are given back, and answers what waited behind them: it must go back too.
func (g *groups) returned(as []*arrival) (behind []*arrival) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, a := range as {
		if one := g.all[a.group]; one != nil && one.out == a {
			one.out = nil
			behind = append(behind, g.empty(one)...)
		}
	}
	g.tell()
	return behind
}

// abandon answers everything that waits, at a stop.
func (g *groups) abandon() (left []*arrival) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, one := range slices.Clone(g.order) {
		left = append(left, g.empty(one)...)
	}
	return left
}

// tell lets a Receive that waits look again.
func (g *groups) tell() {
	select {
	case g.freed <- struct{}{}:
	default: // told already
	}
}

// receiveInOrder is Receive for FIFO queues.
func (s *Source) receiveInOrder(ctx context.Context, max int) ([]pawl.Delivery, error) {
	for {
		if ctx.Err() != nil {
			return nil, s.stopInOrder(ctx)
		}
		ds, stale := s.groups.take(max, s.heart.holds)
		s.dropStale(ctx, stale)
		if len(ds) > 0 {
			return ds, nil
		}
		running := s.pollInBackground(ctx)
		if running == nil { // as much waits as may
			select {
			case <-s.groups.freed:
			case <-ctx.Done():
			}
			continue
		}
		select {
		case <-s.groups.freed:
		case <-ctx.Done():
		case <-running.done:
			s.groups.finish(running)
			if !running.late && (running.err != nil || running.none) {
				return nil, wrap("sqs.receive", s.url, running.err)
			}
		}
	}
}

// pollInBackground returns the poll that runs, or starts one; nil if as much waits as may.
func (s *Source) pollInBackground(ctx context.Context) *poll {
	s.groups.mu.Lock()
	defer s.groups.mu.Unlock()
	if s.groups.poll != nil {
		return s.groups.poll
	}
	if s.groups.waiting+MaxBatch > s.config.Prefetch {
		return nil
	}
	p := &poll{done: make(chan struct{})}
	s.groups.poll = p
	go func() {
		defer close(p.done)
		ds, err := s.pollOnce(ctx, MaxBatch)
		p.none, p.late, p.err = len(ds) == 0, ctx.Err() != nil, err
		s.heart.letGo(s.groups.add(ds))
	}()
	return p
}

func (g *groups) finish(p *poll) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.poll == p {
		g.poll = nil
	}
}

// stopInOrder gives back what waits, waits for the running poll and gives back what it brings. What is out is the caller's.
func (s *Source) stopInOrder(ctx context.Context) error {
	s.giveBack(ctx, s.groups.abandon())
	s.groups.mu.Lock()
	running := s.groups.poll
	s.groups.mu.Unlock()
	if running != nil {
		<-running.done // ends with its call, StopWait after ctx at the latest
		s.groups.finish(running)
		s.giveBack(ctx, s.groups.abandon())
	}
	return wrap("sqs.receive", s.url, ctx.Err())
}

// dropStale makes visible again what stood behind a message that was lost.
func (s *Source) dropStale(ctx context.Context, stale []*arrival) {
	held := slices.DeleteFunc(stale, func(a *arrival) bool { return !s.heart.holds(a) })
	s.giveBack(ctx, held)
}

// attemptID is what a FIFO poll is known by at SQS. After a poll that was not answered it stays the same: SQS then answers
// with the messages that it handed to the lost one, instead of keeping their groups blocked until their timeout.
func (g *groups) attemptID() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.attempt == "" {
		g.attempt = rand.Text()
	}
	return g.attempt
}

func (g *groups) answered() {
	g.mu.Lock()
	g.attempt = ""
	g.mu.Unlock()
}

// giveBack makes messages visible at once that will not be handled here.
func (s *Source) giveBack(ctx context.Context, as []*arrival) error {
	if len(as) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	return s.release(ctx, as, func(*arrival) time.Duration { return 0 })
}

func handleOf(d pawl.Delivery) *arrival { return d.Handle.(*arrival) }
