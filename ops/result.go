package ops

import (
	"encoding/json"
	"slices"
	"time"
)

// An Outcome says what a verb did, or why it did nothing.
type Outcome string

// The outcomes of a change.
const (
	Retried   Outcome = "retried"
	Cancelled Outcome = "cancelled"
	Discarded Outcome = "discarded"
	Settled   Outcome = "settled"   // a step or command with an unknown outcome
	Renewed   Outcome = "renewed"   // a step that will be called again under a new key
	Unblocked Outcome = "unblocked" // a lane
	Changed   Outcome = "changed"   // a setting of a queue or lane
	Paused    Outcome = "paused"    // a schedule
	Resumed   Outcome = "resumed"
	Enqueued  Outcome = "enqueued" // a job of a schedule
	Deleted   Outcome = "deleted"  // a schedule
	Forgotten Outcome = "forgotten"
	Replayed  Outcome = "replayed"
	Reset     Outcome = "reset" // a sequence gate
	Released  Outcome = "released"
)

// The outcomes of a verb that changed nothing.
const (
	Unchanged Outcome = "unchanged" // nothing had to change; there is no audit record
	Refused   Outcome = "refused"   // the status does not allow the verb
	Moved     Outcome = "moved"     // it has changed since the Ref was read
	Early     Outcome = "early"     // a call may still be sent: see [Result.RetryAfter]
	Idle      Outcome = "idle"      // the lane has no head, or the gate holds nothing
	Absent    Outcome = "absent"    // it has finished, was deleted, or never existed
)

var (
	idle     = []Outcome{Unchanged, Refused, Moved, Early, Idle, Absent}
	outcomes = append([]Outcome{Retried, Cancelled, Discarded, Settled, Renewed, Unblocked, Changed, Paused, Resumed, Enqueued, Deleted,
		Forgotten, Replayed, Reset, Released}, idle...)
)

// A Result is the result of a verb on one thing. A refusal is a result, not an error, because it is
// normal when two operators work at once.
type Result struct {
	Outcome Outcome `json:"outcome"`
	// DryRun means that nothing was changed, for every outcome.
	DryRun bool `json:"dry_run,omitzero"`
	// JobID is the job that the verb acted on, or that belongs to the thing: the head of a lane,
	// the owner of a delivery, the job that a schedule enqueued. 0: none.
	JobID int64 `json:"job_id,omitzero"`
	// Was is the previous value: a status, the mode of a queue, "on" or "off" for its archive, the
	// policy of a lane, the number of a sequence gate. Empty: none, or unknown.
	Was string `json:"was,omitzero"`
	// Now is the new value after a change of a step or a sequence gate.
	Now string `json:"now,omitzero"`
	// Fence is the current fence of a step, if it has moved.
	Fence int64 `json:"fence,omitzero"`
	// ProviderKey is the new key of a step that will be called again.
	ProviderKey string `json:"provider_key,omitzero"`
	// RetryAfter is how long to wait if the outcome is [Early].
	RetryAfter time.Duration `json:"-"`
	// Hint is the next step, set if nothing changed.
	Hint string `json:"hint,omitzero"`
}

// Changed reports whether the verb made its change, or in a dry run would have.
func (r Result) Changed() bool { return !slices.Contains(idle, r.Outcome) }

// MarshalJSON writes RetryAfter as retry_after_ms.
func (r Result) MarshalJSON() ([]byte, error) {
	type alias Result
	return json.Marshal(struct {
		alias
		RetryAfterMS int64 `json:"retry_after_ms,omitzero"`
	}{alias(r), r.RetryAfter.Milliseconds()})
}

// A Tally is the result of a verb on many things.
type Tally struct {
	DryRun  bool `json:"dry_run"` // nothing was changed: see Matched
	Matched int  `json:"matched"` // selected at the beginning; a purge sets it in a dry run only
	// changed, each with an audit record; for a purge: deleted rows, with one record
	Done    int `json:"done"`
	Refused int `json:"refused"` // changed by others meanwhile, or not fit for the verb
	Absent  int `json:"absent"`  // finished or discarded meanwhile
	Locked  int `json:"locked"`  // locked by an open transaction
}

// Seen returns how many things were processed.
func (t Tally) Seen() int { return t.Done + t.Refused + t.Absent + t.Locked }
