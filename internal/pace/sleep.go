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

// Jittered is a duration between the half of d and d, so that what began together does not meet again.
func Jittered(d time.Duration) time.Duration { return d/2 + rand.N(d/2+1) }
