package observe

import (
	"time"

	"github.com/pawl-go/pawl"
)

// EventOptions say how events become metrics. The zero value is fit for production.
type EventOptions struct {
	// Scope is the label scope of an event; "" leaves it empty. Default [Scope], which leaves out what callers of your service can
	// choose. Each value costs some 60 series for as long as the process lives.
	Scope func(pawl.Event) string
	// MaxScopes bounds how many values the label scope takes; from there on it is "other". Default 200.
	MaxScopes int
}

// DatabaseOptions say how the database is read. The zero value is fit for production.
type DatabaseOptions struct {
	// Every is how old a gauge may be: what is asked for sooner gets the same numbers. Shorter sees more and reads more. Default
	// 15 s, at least 1 s.
	Every time.Duration
	// Timeout ends the reads of one call, all together. It is the server's statement_timeout, so that nothing goes on that nobody
	// waits for. A second more may pass until the answer is that there is none; a scrape must be allowed both. Default 2 s.
	Timeout time.Duration
	// Without leaves reads out by their names, which docs/reference/metrics.md lists. "jobs" is the one that grows with the jobs.
	Without []string
	// Hooks hear of reads that failed: error, with the op "observe.read". The zero value logs them.
	Hooks pawl.Hooks
}
