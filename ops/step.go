package ops

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/catalog"
)

// A Step is a call to another system through package step.
type Step struct {
	// with Key the owner: "job/QUEUE" and "ID@…" of a job, "inbox/CONSUMER" and the key of a
	// delivery, "command/SCOPE" and the key of a command, "guard/TABLE" and the id of a row
	Scope       string `json:"scope"`
	Key         string `json:"key"`
	Step        string `json:"step"` // its name
	Status      Status `json:"status"`
	Fence       int64  `json:"fence"` // of the newest call or probe; a verdict names it
	Recovery    string `json:"recovery"`
	Provider    string `json:"provider,omitzero"`
	ProviderKey string `json:"provider_key"`       // the idempotency key of its calls
	Reference   string `json:"reference,omitzero"` // the provider's name for the result
	// the job that waits for it, if it is unknown; 0: none
	JobID         int64     `json:"job_id,omitzero"`
	Calls         int       `json:"calls"`
	InDoubt       int       `json:"in_doubt"` // calls that may or may not have been executed
	FirstCalledAt time.Time `json:"first_called_at,omitzero"`
	LastNotAfter  time.Time `json:"last_not_after,omitzero"` // nothing was sent later than this
	// until then the provider surely knows the key; zero: not configured
	MemoryEndsAt   time.Time `json:"memory_ends_at,omitzero"`
	FailureCode    string    `json:"failure_code,omitzero"`
	FailureMessage string    `json:"failure_message,omitzero"`
	CreatedAt      time.Time `json:"created_at"`
	UpdatedAt      time.Time `json:"updated_at"`
	ExpiresAt      time.Time `json:"expires_at"` // when we forget it, if it has ended
	ReadAt         time.Time `json:"read_at"`    // the database's clock when the row was read

	// the newest 100 calls and probes, oldest first; read by Get only, like Changes
	History []StepCall `json:"history,omitzero" col:"-"`
	// by operators: the newest 100, oldest first
	Changes []Change `json:"changes,omitzero" col:"-"`
}

// Ref returns a reference to the step as it was read.
func (s Step) Ref() StepRef {
	return StepRef{Scope: s.Scope, Key: s.Key, Step: s.Step, Fence: s.Fence}
}

// A StepCall is the record of one call or one probe.
type StepCall struct {
	Fence     int64     `json:"fence"`
	Probe     bool      `json:"probe"` // it only asked whether an earlier call was executed
	StartedAt time.Time `json:"started_at"`
	NotAfter  time.Time `json:"not_after"`         // nothing was sent later than this
	EndedAt   time.Time `json:"ended_at,omitzero"` // zero: no end was recorded
	// "executed", "refused", "not_sent", "ambiguous"; of a probe also "not_executed",
	// "cannot_tell"; empty: none recorded
	Outcome   string          `json:"outcome,omitzero"`
	Reference string          `json:"reference,omitzero"`
	Detail    json.RawMessage `json:"detail"` // an object: error, code, exchange
}

// Steps selects steps. The zero value selects all.
type Steps struct {
	Scope, Key string
	Provider   string
	Statuses   []Status // empty: any
	After      string   // only rows after this one: [Page.Next] of the previous page
	Limit      int      // default 50, at most 1000
}

// List returns steps ordered by scope, key and name, compared by bytes.
//
// Errors: [pawl.ErrArgumentInvalid].
func (s Steps) List(ctx context.Context, db pawl.DB) (Page[Step], error) {
	const op = "step.list"
	page, err := pageOf(op, s.After, s.Limit, anyText, anyText, anyText)
	if err = cmp.Or(err, checkStatuses(op, StepStatuses(), s.Statuses)); err != nil {
		return Page[Step]{}, err
	}
	q := catalog.StepQuery{Scope: s.Scope, Key: s.Key, Statuses: texts(s.Statuses), Page: page}
	if s.Provider != "" {
		q.Providers = []string{s.Provider}
	}
	rows, err := catalog.Steps[Step](ctx, db, q)
	return cut(rows, page, func(s Step) []string { return []string{s.Scope, s.Key, s.Step} }), err
}

// A StepRef identifies a step, and may hold what you saw of it.
type StepRef struct {
	Scope, Key, Step string
	Fence            int64 // of the newest call, as you saw it; required by Settle and Again
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
	history, err := catalog.StepCalls[StepCall](ctx, db, r.Scope, r.Key, r.Step, changeLimit)
	if err != nil {
		return Step{}, err
	}
	s.History = listed(history)
	s.Changes, err = r.Changes(ctx, db)
	return s, err
}

// Changes returns the newest 100 audit records of the step, oldest first.
func (r StepRef) Changes(ctx context.Context, db pawl.DB) ([]Change, error) {
	return changes(ctx, db, "step", r.Scope, r.Key, r.Step)
}
