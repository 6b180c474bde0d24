package ops

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/contract"
)

// A Stale is something that stands still until somebody decides, or something notices.
type Stale struct {
	Kind, Scope, Key string // "command"; "effect", with its owner's scope and key; "job": queue and id
	Class            string // "unknown", "abandoned", "dead_letter", "orphaned", or [AlreadySucceeded]
	Reason, Advice   string
	Since            time.Time
	Detail           json.RawMessage
}

// AlreadySucceeded is the class of what a [StaleProbe] knows to have taken effect.
const AlreadySucceeded = "already_succeeded"

// A StaleProbe looks into your own tables, or asks who was called: did this take effect after all? It changes nothing. If it cannot
// tell it returns false.
type StaleProbe func(ctx context.Context, s Stale) (succeeded bool, err error)

// Stales returns what stands still, of a kind ("command", "effect" or "job") or of all (""). It changes nothing, and reads the whole of
// the tables. probes, one a [Stale.Scope], may be nil; they are asked one after the other about all that is of their scope.
//
// Errors: [pawl.ErrArgumentInvalid] for the kind, and the first of a probe.
func Stales(ctx context.Context, db DB, kind string, probes map[string]StaleProbe) ([]Stale, error) {
	rows, err := contract.StaleClassify(ctx, db, kind)
	if err != nil {
		return nil, err
	}
	all := make([]Stale, len(rows))
	for i, r := range rows {
		if all[i], err = probed(ctx, Stale(r), probes[r.Scope]); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// settling says how each kind is told that it took effect.
var settling = map[string]string{
	"command": "settle it as landed, once it is unknown: command_settle",
	"effect":  "settle it as landed: effect_settle",
	"job":     "discard it: job_discard, or job_cancel while an attempt may hold it",
}

func probed(ctx context.Context, s Stale, probe StaleProbe) (Stale, error) {
	if probe == nil {
		return s, nil
	}
	succeeded, err := probe(ctx, s)
	if err != nil {
		return s, &pawl.Error{Op: "stale.probe", Err: fmt.Errorf("%s %s of %s: %w", s.Kind, s.Key, s.Scope, err)}
	}
	if succeeded {
		s.Class, s.Reason, s.Advice = AlreadySucceeded, "its probe found that it took effect", settling[s.Kind]
	}
	return s, nil
}
