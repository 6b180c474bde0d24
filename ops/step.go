package ops

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/catalog"
)

// A Step is a call of another system by package step.
type Step struct {
	Scope          string    `json:"scope"` // with Key the owner: "job/QUEUE" and "ID@…" of a job, "command/SCOPE" and the key of a command
	Key            string    `json:"key"`
	Step           string    `json:"step"` // its name
	Status         Status    `json:"status"`
	Fence          int64     `json:"fence"` // of the newest call or probe; a verdict names it
	Recovery       string    `json:"recovery"`
	Provider       string    `json:"provider,omitzero"`
	ProviderKey    string    `json:"provider_key"`       // the idempotency key that its calls carried
	Reference      string    `json:"reference,omitzero"` // the provider's name for what it made
	JobID          int64     `json:"job_id,omitzero"`    // the job that waits for it, if it is unknown; 0: none
	Calls          int       `json:"calls"`
	InDoubt        int       `json:"in_doubt"` // calls that may or may not have been executed
	FirstCalledAt  time.Time `json:"first_called_at,omitzero"`
	LastNotAfter   time.Time `json:"last_not_after,omitzero"` // nothing was sent later than this
	MemoryEndsAt   time.Time `json:"memory_ends_at,omitzero"` // until then the provider is sure to know the key; zero: it was not said
	FailureCode    string    `json:"failure_code,omitzero"`
	FailureMessage string    `json:"failure_message,omitzero"`
	CreatedAt      time.Time `json:"created_at"`
	UpdatedAt      time.Time `json:"updated_at"`
	ExpiresAt      time.Time `json:"expires_at"` // end of our memory, if it has ended
	ReadAt         time.Time `json:"read_at"`    // the database's clock at the reading

	History []StepCall `json:"history,omitzero" col:"-"` // the newest 100 calls and probes, oldest first; read by Get only, as Changes
	Changes []Change   `json:"changes,omitzero" col:"-"` // by hand: the newest 100, oldest first
}

// Ref names the step as it was read.
func (s Step) Ref() StepRef {
	return StepRef{Scope: s.Scope, Key: s.Key, Step: s.Step, Fence: s.Fence}
}

// A StepCall is what was seen of one call, or of one probe.
type StepCall struct {
	Fence     int64           `json:"fence"`
	Probe     bool            `json:"probe"` // it only asked whether an earlier call had been executed
	StartedAt time.Time       `json:"started_at"`
	NotAfter  time.Time       `json:"not_after"`         // nothing was sent later than this
	EndedAt   time.Time       `json:"ended_at,omitzero"` // zero: no end was recorded
	Outcome   string          `json:"outcome,omitzero"`  // "executed", "refused", "not_sent", "ambiguous"; "not_executed", "cannot_tell"; empty: none was recorded
	Reference string          `json:"reference,omitzero"`
	Detail    json.RawMessage `json:"detail"` // an object: error, code, exchange
}

// Steps selects steps. The zero value selects all.
type Steps struct {
	Scope, Key string
	Provider   string
	Statuses   []Status // empty: any
	After      string   // only those behind this one: [Page.Next] of the page before
	Limit      int      // default 50, at most 1000
}

// List returns steps in the order of scope, key and name, by octets.
//
// Errors: [pawl.ErrArgumentInvalid].
func (s Steps) List(ctx context.Context, db pawl.DB) (Page[Step], error) {
	const op = "step.list"
	page, err := pageOf(op, s.After, s.Limit, anyText, anyText, anyText)
	if err == nil {
		err = known(op, StepStatuses(), s.Statuses)
	}
	if err != nil {
		return Page[Step]{}, err
	}
	q := catalog.StepQuery{Scope: s.Scope, Key: s.Key, Statuses: texts(s.Statuses), Page: page}
	if s.Provider != "" {
		q.Providers = []string{s.Provider}
	}
	rows, err := catalog.Steps[Step](ctx, db, q)
	return cut(rows, page, func(s Step) []string { return []string{s.Scope, s.Key, s.Step} }), err
}

// A StepRef names a step, and what you saw of it.
type StepRef struct {
	Scope, Key, Step string
	Fence            int64 // of the newest call, as you saw it; Settle and Again require it
}

// Get returns everything about the step.
//
// Errors: [pawl.ErrNotFound].
func (r StepRef) Get(ctx context.Context, db pawl.DB) (Step, error) {
	rows, err := catalog.Step[Step](ctx, db, r.Scope, r.Key, r.Step)
	s, err := only(rows, err, "step.get", fmt.Sprintf("step %s of %s in scope %s", r.Step, r.Key, r.Scope))
	if err != nil {
		return s, err
	}
	if s.History, err = catalog.StepCalls[StepCall](ctx, db, r.Scope, r.Key, r.Step, changeLimit); err != nil {
		return Step{}, err
	}
	if s.History == nil {
		s.History = []StepCall{}
	}
	s.Changes, err = r.Changes(ctx, db)
	return s, err
}

// Changes returns what was done with the step by hand: the newest 100 records, oldest first.
func (r StepRef) Changes(ctx context.Context, db pawl.DB) ([]Change, error) {
	return changes(ctx, db, "step", r.Scope, r.Key, r.Step)
}
