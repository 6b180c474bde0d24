package job

import (
	"context"
	"sync"
	"time"
)

// slots count what may still be started. What is given back together can be taken together: given back one by one, a batch
// of a hundred would be followed by a hundred batches of one.
type slots struct {
	mu    sync.Mutex
	size  int
	free  int
	given chan struct{} // closed at the next give; nil: nobody waits
}

func newSlots(size int) *slots { return &slots{size: size, free: size} }

// take waits for one slot, takes up to limit, and returns how many it took: none if ctx has ended.
func (s *slots) take(ctx context.Context, limit int) (taken int) {
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

// gather waits until so many slots are free, but not for long.
func (s *slots) gather(ctx context.Context, enough int, patience time.Duration) {
	var late <-chan time.Time
	for {
		s.mu.Lock()
		free, given := s.free, s.next()
		s.mu.Unlock()
		if free >= min(enough, s.size) {
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

// takeAll takes slot after slot until it has them all or ctx ends.
func (s *slots) takeAll(ctx context.Context) (taken int) {
	for taken < s.size {
		n := s.take(ctx, s.size-taken)
		if n == 0 {
			break
		}
		taken += n
	}
	return taken
}

func (s *slots) give(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free += n
	if s.given != nil {
		close(s.given)
		s.given = nil
	}
}

// next returns what the next give closes. It is called with the lock held.
func (s *slots) next() <-chan struct{} {
	if s.given == nil {
		s.given = make(chan struct{})
	}
	return s.given
}
