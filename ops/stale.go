package ops

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/contract"
)

// A Stale is something that stands still until an operator decides, or a worker notices.
type Stale struct {
	Kind   string          `json:"kind"`  // "command", "step" or "job"
	Scope  string          `json:"scope"` // of a job the queue, of a step its owner's
	Key    string          `json:"key"`   // of a job the id, of a step its owner's
	Class  string          `json:"class"` // "unknown", "abandoned", "dead_letter", "orphaned", or [AlreadySucceeded]
	Reason string          `json:"reason"`
	Advice string          `json:"advice"`
	Since  time.Time       `json:"since"`
	Detail json.RawMessage `json:"detail"`
}

// AlreadySucceeded is the class of what a probe knows to have taken effect.
const AlreadySucceeded = "already_succeeded"

// Stales returns what stands still, of a kind ("command", "step" or "job") or of all (""). It changes nothing, and reads the whole of
// the tables.
//
// probes, one a [Stale.Scope], may be nil. A probe looks into your own tables, or asks the system that was called: did this take effect after all? If
// it cannot tell it returns false. Probes are asked one after the other about all that is of their scope.
//
// Errors: [pawl.ErrArgumentInvalid] for the kind, and the first of a probe.
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

// settling says how each kind is told that it took effect.
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
