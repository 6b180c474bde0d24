package ops

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/contract"
)

// A Stale is stalled work that waits for an operator to decide or for a worker to notice.
type Stale struct {
	Kind  string `json:"kind"`  // "command", "step" or "job"
	Scope string `json:"scope"` // of a job: the queue; of a step: its owner's
	Key   string `json:"key"`   // of a job: the id; of a step: its owner's
	// Class is "unknown": it needs a verdict; "abandoned": its attempt is gone, and the next claim
	// or sweep takes it; "dead_letter"; "orphaned": a call whose outcome no attempt will find out;
	// or [AlreadySucceeded].
	Class  string          `json:"class"`
	Reason string          `json:"reason"`
	Advice string          `json:"advice"`
	Since  time.Time       `json:"since"`
	Detail json.RawMessage `json:"detail"`
}

// AlreadySucceeded is the class of work for which a probe found that it took effect.
const AlreadySucceeded = "already_succeeded"

// Stales returns stalled work of a kind ("command", "step" or "job") or of all kinds (""). It
// changes nothing and reads the whole tables.
//
// probes holds a probe for each [Stale.Scope], and may be nil. A probe reads your own tables, or
// asks the other system, whether the work took effect after all. If it cannot tell, it returns
// false. Probes are called one after the other.
//
// Errors: [pawl.ErrArgumentInvalid] for the kind; the first error of a probe.
func Stales(ctx context.Context, db pawl.DB, kind string, probes map[string]func(ctx context.Context, s Stale) (succeeded bool, err error)) ([]Stale, error) {
	rows, err := contract.StaleClassify(ctx, db, kind)
	if err != nil {
		return nil, err
	}
	all := make([]Stale, len(rows))
	for i, r := range rows {
		all[i] = Stale(r)
		all[i].Since = r.Since.UTC()
		if err := all[i].ask(ctx, probes[r.Scope]); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// settling tells, for each kind, how to record that the work took effect.
var settling = map[string]string{
	"command": "settle it as executed, once it is unknown: command_settle",
	"step":    "settle it as executed: step_settle",
	"job":     "discard it: job_discard, or job_cancel while an attempt may hold it",
}

func (s *Stale) ask(ctx context.Context, probe func(ctx context.Context, s Stale) (bool, error)) error {
	if probe == nil {
		return nil
	}
	succeeded, err := probe(ctx, *s)
	if err != nil {
		return &pawl.Error{Op: "stale.probe", Err: fmt.Errorf("%s %s of %s: %w", s.Kind, s.Key, s.Scope, err)}
	}
	if succeeded {
		s.Class, s.Reason, s.Advice = AlreadySucceeded, "its probe found that it took effect", settling[s.Kind]
	}
	return nil
}
