package ops

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/contract"
)

// A Moment is one entry of a [Story].
type Moment struct {
	// zero: no time is known; later than the story's ReadAt: in the future
	At time.Time `json:"at,omitzero"`
	// "command", "delivery", "gate", "enqueue_key", "job" or "step"
	Kind string `json:"kind"`
	// with Key its name; of a job: the queue and the id; empty: no longer known
	Scope string `json:"scope,omitzero"`
	Key   string `json:"key"`
	// the current status, the verb of an operator, or what happened
	Event  string          `json:"event"`
	Detail json.RawMessage `json:"detail"` // never a payload
}

// A Story is everything that is known of a key.
type Story struct {
	Key     string   `json:"key"`
	Moments []Moment `json:"moments"` // ordered by time
	Looked  []string `json:"looked"`  // places that were searched: "commands of 12 scopes"
	// places too large to search completely: "scopes"; then give the scope
	Beyond []string  `json:"beyond"`
	ReadAt time.Time `json:"read_at"`
}

// Known reports whether anything is known of the key.
func (s Story) Known() bool { return len(s.Moments) > 0 }

// Explain returns the history of one key from the rows and the audit. The key is that of a command,
// a delivery, a job or an event, the id of a job, or the resource of a sequence gate. The id of a
// row of package guard leads to the row's steps. scope is a command's scope, a consumer, a queue or
// a table of package guard; without it, Explain searches the first 500 of each. It reads through
// indexes only.
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
