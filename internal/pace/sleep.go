package pace

import (
	"context"
	"math/rand/v2"
	"time"
)

// Sleep waits for d and reports true, or reports false as soon as ctx ends.
func Sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// Jittered returns a random duration between d/2 and d, so that processes that start together do
// not stay in step.
func Jittered(d time.Duration) time.Duration { return d/2 + rand.N(d/2+1) }
