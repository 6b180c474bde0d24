package job

import (
	"context"
	"sync"
	"time"
)

// capacity counts the slots in which jobs may still be started. Slots that are given back together can
// be taken together: given back one by one, a batch of a hundred would be followed by a hundred
// batches of one.
//
// It also keeps the attempts whose handlers are done and whose ends wait for the producer's next
// exchange.
type capacity struct {
	mu         sync.Mutex
	size       int
	free       int
	given      chan struct{} // closed at the next give; nil: nobody waits
	keeps      bool          // the producer takes what is done
	exchanging bool          // and it comes round soon
	done       []*attempt
	enough     int // of slots that are free, or whose jobs are done: who waits is told
}

func newCapacity(size int) *capacity { return &capacity{size: size, free: size} }

// take waits for one slot, takes up to limit, and returns how many it took: none if ctx has ended.
func (s *capacity) take(ctx context.Context, limit int) (taken int) {
	for ctx.Err() == nil {
		s.mu.Lock()
		taken, given := min(s.free, limit), s.next()
		s.free -= taken
		s.mu.Unlock()
		if taken > 0 {
			return taken
		}
		select {
		case <-given:
		case <-ctx.Done():
		}
	}
	return 0
}

// gather waits until so many slots are free or their jobs are done, but not for long.
func (s *capacity) gather(ctx context.Context, enough int, patience time.Duration) {
	var late <-chan time.Time
	for {
		s.mu.Lock()
		ready, given := s.free+len(s.done), s.next()
		s.enough = min(enough, s.size)
		s.exchanging = s.keeps
		s.mu.Unlock()
		if ready >= min(enough, s.size) {
			return
		}
		if late == nil {
			late = time.After(patience)
		}
		select {
		case <-given:
		case <-late:
			return
		case <-ctx.Done():
			return
		}
	}
}

// takeDone waits for one slot or one attempt whose job is done, and takes up to limit of each; nothing if ctx has ended.
func (s *capacity) takeDone(ctx context.Context, limit int) (done []*attempt, taken int) {
	for ctx.Err() == nil {
		s.mu.Lock()
		n := min(len(s.done), limit)
		done, s.done = s.done[:n:n], s.done[n:]
		taken = min(s.free, limit-n)
		s.free -= taken
		s.enough = 1
		given := s.next()
		s.mu.Unlock()
		if n+taken > 0 {
			return done, taken
		}
		select {
		case <-given:
		case <-ctx.Done():
		}
	}
	return nil, 0
}

// hand keeps an attempt for the producer's next exchange. It reports false if none comes soon.
func (s *capacity) hand(a *attempt) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.exchanging {
		return false
	}
	s.done = append(s.done, a)
	if s.free+len(s.done) >= s.enough {
		s.tell()
	}
	return true
}

// rest returns what is done when no exchange comes soon. Until the next gather nothing is kept.
func (s *capacity) rest() (done []*attempt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	done, s.done, s.exchanging = s.done, nil, false
	return done
}

// takeAll takes slot after slot until it has them all or ctx ends.
func (s *capacity) takeAll(ctx context.Context) (taken int) {
	for taken < s.size {
		n := s.take(ctx, s.size-taken)
		if n == 0 {
			break
		}
		taken += n
	}
	return taken
}

func (s *capacity) give(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free += n
	s.tell()
}

// tell wakes who waits. It is called with the lock held, as next is.
func (s *capacity) tell() {
	if s.given != nil {
		close(s.given)
		s.given = nil
	}
}

// next returns what the next give closes.
func (s *capacity) next() <-chan struct{} {
	if s.given == nil {
		s.given = make(chan struct{})
	}
	return s.given
}
