package consumer

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/testbed/patience"
)

// A slowSource blocks Release until the test lets it go, and notes whether Finish overlaps it.
type slowSource struct {
	pawl.Source
	entered, goOn        chan struct{}
	releasing, finishing atomic.Int32
	overlapped           atomic.Bool
	releases, finishes   atomic.Int32
}

func (s *slowSource) Release(context.Context, time.Duration, ...pawl.Delivery) error {
	s.releasing.Add(1)
	defer s.releasing.Add(-1)
	s.releases.Add(1)
	close(s.entered) // a second Release panics
	<-s.goOn
	return nil
}

func (s *slowSource) Finish(context.Context) error {
	s.finishing.Add(1)
	s.finishes.Add(1)
	if s.releasing.Load() > 0 {
		s.overlapped.Store(true)
	}
	return nil
}

// An abandoned handler may be releasing its delivery when the source is finished. Finish waits for
// that, and later releases do not reach the source.
func TestFinish_OverlapsNoRelease(t *testing.T) {
	t.Parallel()
	s := &slowSource{entered: make(chan struct{}), goOn: make(chan struct{})}
	c := &Consumer{cfg: Config{Source: s}}
	done := make(chan struct{})
	go func() {
		c.giveBack(context.Background(), 0, pawl.Delivery{})
		done <- struct{}{}
	}()
	<-s.entered
	go func() {
		c.finish(context.Background())
		done <- struct{}{}
	}()
	waits := func() bool { // no further reader enters once the writer waits
		if !c.source.TryRLock() {
			return true
		}
		c.source.RUnlock()
		return false
	}
	patience.Until(t, "the source is finished", func() bool { return waits() || s.finishing.Load() > 0 })
	close(s.goOn)
	<-done
	<-done
	c.giveBack(t.Context(), 0, pawl.Delivery{})
	c.finish(t.Context())
	if s.overlapped.Load() || s.releases.Load() != 1 || s.finishes.Load() != 1 {
		t.Errorf("overlapped %t, %d releases, %d finishes", s.overlapped.Load(), s.releases.Load(), s.finishes.Load())
	}
}
