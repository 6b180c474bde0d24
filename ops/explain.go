package ops

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/contract"
)

// A Moment is one line of a [Story].
type Moment struct {
	At     time.Time       `json:"at,omitzero"`    // zero: it has no time. Later than the story's ReadAt: it is to come
	Kind   string          `json:"kind"`           // what it is about: "command", "delivery", "gate", "enqueue_key", "job", "step"
	Scope  string          `json:"scope,omitzero"` // with Key its name: of a job the queue and the id. Empty: not known any more
	Key    string          `json:"key"`
	Event  string          `json:"event"`  // the status for what is so now, the verb for what was done by hand, else what happened
	Detail json.RawMessage `json:"detail"` // never a payload
}

// A Story is all that is known of a key.
type Story struct {
	Key     string    `json:"key"`
	Moments []Moment  `json:"moments"` // in the order of time
	Looked  []string  `json:"looked"`  // where: "commands of 12 scopes"
	Beyond  []string  `json:"beyond"`  // of what there was too much to look everywhere: "scopes"; give the scope then
	ReadAt  time.Time `json:"read_at"`
}

// Known reports whether anything is known.
func (s Story) Known() bool { return len(s.Moments) > 0 }

// Explain tells the story of one intent from the rows and the audit: the key of a command, a delivery, a job or an event, the id
// of a job, or the resource of a sequence gate. It reads by indexes only. Without a scope, which may be a command's, a consumer or a queue, it
// looks in the first 500 of each.
//
// Errors: [pawl.ErrKeyInvalid].
func Explain(ctx context.Context, db pawl.DB, key, scope string) (Story, error) {
	rows, err := contract.Explain(ctx, db, key, scope)
	if err != nil {
		return Story{}, err
	}
	s := Story{Key: key, Moments: []Moment{}}
	for _, r := range rows {
		s.ReadAt = r.ReadAt.UTC()
		if r.Kind == "looked" {
			return s, s.look(r.Detail, scope)
		}
		m := Moment{Kind: r.Kind, Scope: r.Scope, Key: r.Key, Event: r.Event, Detail: r.Detail}
		if r.At != nil {
			m.At = r.At.UTC()
		}
		s.Moments = append(s.Moments, m)
	}
	return s, nil
}

func (s *Story) look(detail []byte, scope string) error {
	var looked struct {
		Scopes, Consumers, Queues, Steps int
		Beyond                           []string
	}
	if err := json.Unmarshal(detail, &looked); err != nil {
		return err
	}
	s.Beyond = listed(looked.Beyond)
	if scope != "" {
		s.Looked = []string{"commands, deliveries, gates, enqueue keys and steps of " + scope}
	} else {
		s.Looked = []string{fmt.Sprintf("commands of %d scopes", looked.Scopes), fmt.Sprintf("deliveries and gates of %d consumers", looked.Consumers),
			fmt.Sprintf("enqueue keys of %d queues", looked.Queues), fmt.Sprintf("steps of %d owners", looked.Steps)}
	}
	s.Looked = append(s.Looked, "jobs", "the archive", "the audit")
	return nil
}
