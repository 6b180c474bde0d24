package job

import (
	"math/rand/v2"
	"time"
)

// Backoff is exponential with full jitter: before attempt n+1 a job waits a random time up to Base
// × 2^(n-1), at most Max. Full jitter spreads many retries best (AWS Architecture Blog,
// "Exponential Backoff And Jitter").
type Backoff struct {
	// Base is the bound after the first failure. Longer spares a struggling dependency. Shorter
	// recovers sooner. Default 1 s.
	Base time.Duration
	// Max bounds every wait. Default 10 min, at most a year.
	Max time.Duration
}

// After returns a random wait after failed attempt n, n ≥ 1.
func (b Backoff) After(n int) time.Duration {
	base, limit := b.Base, b.Max
	if base <= 0 {
		base = time.Second
	}
	if limit <= 0 {
		limit = 10 * time.Minute
	}
	limit = within(limit)
	bound := limit
	if n < 32 && base<<(n-1) > 0 && base<<(n-1) < limit {
		bound = base << (n - 1)
	}
	return rand.N(bound) + 1
}

// within bounds a wait to what the database accepts: 0 to a year.
func within(d time.Duration) time.Duration { return max(0, min(d, 365*24*time.Hour-time.Second)) }
