package step

import (
	"context"
	"time"
)

// A Recovery says what may be done after a call of which nobody knows whether it was executed.
type Recovery struct {
	name   string
	memory time.Duration
	settle time.Duration
	probe  Probe
}

// String is the recovery's name in the database.
func (p Recovery) String() string { return p.name }

// Keyed is for providers that drop a second request with the same idempotency key: the step is called again with its key, for as
// long as they are sure to remember it. memory is how long that is, from the first request with the key; its last tenth, at most
// a minute, is not used. After that the step is unknown.
//
// The key must go with each call. If neither a [Transport] sent it nor anything asked for [Call.Key], the call fails: what was executed is kept, and
// the error is [pawl.Final] so that it is seen at the first try; a call that may have been executed is unknown, and is not made again. See [Providers] for documented windows.
func Keyed(memory time.Duration) Recovery { return Recovery{name: "keyed", memory: memory} }

// Checked is for providers that can be asked whether a request was executed. probe is called before the step is called again, and not
// before settle after the last moment at which the earlier call can have been sent: what was sent then must show by then. Default
// 10 s. probe must read what is strongly consistent: a search index that lags says "not there" of what is.
func Checked(probe Probe, settle time.Duration) Recovery {
	if settle <= 0 {
		settle = defaultSettle
	}
	return Recovery{name: "checked", probe: probe, settle: settle}
}

// AtMostOnce calls once. If nobody knows how that ended, the step is unknown.
func AtMostOnce() Recovery { return Recovery{name: "at_most_once"} }

// Repeatable is for requests that may be repeated because of what they say: set this to that, delete this.
func Repeatable() Recovery { return Recovery{name: "repeatable"} }

// AcceptDuplicates calls again and says so: [pawl.EventStepRepeated] counts what may have happened twice.
func AcceptDuplicates() Recovery { return Recovery{name: "accept_duplicates"} }

// A ProbeResult says whether an earlier call took effect.
type ProbeResult string

// What a probe finds.
const (
	Executed    ProbeResult = "executed"
	NotExecuted ProbeResult = "not_executed"
	CannotTell  ProbeResult = "cannot_tell"
)

// A Probe asks the provider whether an earlier call of the step was executed, and returns what it made, as the call would have. An error
// means that the provider could not be asked: it is asked again at the next attempt. It may be asked by [Reconcile] as well, where
// nothing is at hand but the Call.
type Probe func(ctx context.Context, c Call) (ProbeResult, any, error)
