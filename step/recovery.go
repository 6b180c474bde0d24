package step

import (
	"context"
	"time"
)

// A Recovery says what may be done after a call with unknown outcome.
type Recovery struct {
	name   string
	memory time.Duration
	settle time.Duration
	probe  Probe
}

// String returns the recovery's name in the database.
func (p Recovery) String() string { return p.name }

// Keyed is for providers that drop a second request with the same idempotency key. The step is
// called again with its key while the provider is sure to remember it. memory is that time, from
// the first request with the key, 1 s or more; its last tenth, at most a minute, is not used. After
// that the step is unknown. [Providers] lists documented times.
//
// Each call must send the key. If neither a [Transport] sent it nor [Call.Key] was called, the call
// fails with a [pawl.Final] error, so that the mistake shows at the first try. An executed call
// stays executed. A call that may have been executed becomes unknown and is not repeated.
func Keyed(memory time.Duration) Recovery { return Recovery{name: "keyed", memory: memory} }

// Checked is for providers that can tell whether a request was executed. Before the step is called
// again, probe runs, but not before settle has passed since the earlier call can last have been
// sent. By then that call's effect must be visible. Default 10 s. probe must read strongly
// consistent data: a lagging search index misses existing objects.
func Checked(probe Probe, settle time.Duration) Recovery {
	if settle <= 0 {
		settle = defaultSettle
	}
	return Recovery{name: "checked", probe: probe, settle: settle}
}

// AtMostOnce calls once. If the outcome is unknown, the step becomes unknown.
func AtMostOnce() Recovery { return Recovery{name: "at_most_once"} }

// Repeatable is for requests whose repetition changes nothing: set a value, delete an object.
func Repeatable() Recovery { return Recovery{name: "repeatable"} }

// AcceptDuplicates calls again and emits [pawl.EventStepRepeated] for each possible duplicate.
func AcceptDuplicates() Recovery { return Recovery{name: "accept_duplicates"} }

// A ProbeResult says whether an earlier call took effect.
type ProbeResult string

// Results of a probe.
const (
	Executed    ProbeResult = "executed"
	NotExecuted ProbeResult = "not_executed"
	CannotTell  ProbeResult = "cannot_tell"
)

// A Probe asks the provider whether an earlier call of the step was executed, and returns the
// result of that call. If it returns an error, the provider is asked again at the next attempt.
// [Reconcile] may also call it, so it must need only the Call.
type Probe func(ctx context.Context, c Call) (ProbeResult, any, error)
