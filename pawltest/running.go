package pawltest

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/pawl-go/pawl"
)

// whileRunning calls do while run is running, and then stops run. The context of do ends after the
// limit, or when run returns by itself, which it does with an error if it cannot start.
func whileRunning(ctx context.Context, run func(context.Context) error, limit time.Duration, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	running, stop := context.WithCancel(context.Background())
	defer stop()
	stopped := make(chan error, 1)
	go func() {
		stopped <- run(running)
		cancel()
	}()
	err := do(ctx)
	select {
	case failed := <-stopped:
		return cmp.Or(failed, err)
	default: // also if run has only just begun, because then there was no work
		stop()
		<-stopped
		return err
	}
}

// lastError keeps the last error event, for the message of a test that took too long.
type lastError struct {
	mu  sync.Mutex
	err error
}

func (l *lastError) event(_ context.Context, e pawl.Event) {
	if e.Kind == pawl.EventError {
		l.mu.Lock()
		l.err = e.Err
		l.mu.Unlock()
	}
}

func (l *lastError) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		return ""
	}
	return fmt.Sprintf("\nThe last error: %v", l.err)
}
