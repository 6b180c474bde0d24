package job

import (
	"context"
	"sync"
)

// slots count what may still be started. What is given back together can be taken together: given back one by one, a batch
// of a hundred would be followed by a hundred batches of one.
type slots struct {
	mu    sync.Mutex
	size  int
	free  int
	given chan struct{} // closed and replaced at every give
}

func newSlots(size int) *slots { return &slots{size: size, free: size, given: make(chan struct{})} }

// take waits for one slot, takes up to limit, and returns how many it took: none if ctx has ended.
func (s *slots) take(ctx context.Context, limit int) (taken int) {
	for ctx.Err() == nil {
		s.mu.Lock()
		taken, given := min(s.free, limit), s.given
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
	close(s.given)
	s.given = make(chan struct{})
}
