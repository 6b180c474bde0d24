package observe

import (
	"time"

	"github.com/pawl-go/pawl"
)

// EventOptions configure how events become metrics. The zero value is fit for production.
type EventOptions struct {
	// Scope returns the label scope of an event; it may be empty. The default [Scope] leaves out
	// scopes that callers of your service can choose. Each value costs about 60 series while the
	// process runs.
	Scope func(pawl.Event) string
	// MaxScopes bounds the number of values of the label scope. Further ones become "other".
	// Default 200.
	MaxScopes int
}

// DatabaseOptions configure how the database is read. The zero value is fit for production.
type DatabaseOptions struct {
	// Every is the maximum age of a gauge: earlier requests get the same numbers. Shorter is more
	// current and reads more. Default 15 s, minimum 1 s.
	Every time.Duration
	// Timeout bounds all reads of one call together. It is set as the server's statement_timeout,
	// so that no read continues without a reader. A failed call may return a second later; a
	// scrape's timeout must allow both. Default 2 s.
	Timeout time.Duration
	// Without lists reads to leave out; docs/reference/metrics.md has their names. The cost of
	// "jobs" grows with the number of jobs.
	Without []string
	// Hooks receive an event "error" with the op "observe.read" for each failed read. The zero
	// value logs them.
	Hooks pawl.Hooks
}
