package ops

import (
	"encoding/json"
	"slices"
	"time"
)

// An Outcome is what a verb did, or why it did nothing.
type Outcome string

// The outcomes of a change.
const (
	Retried   Outcome = "retried"
	Cancelled Outcome = "cancelled"
	Discarded Outcome = "discarded"
	Settled   Outcome = "settled"   // a step or command of which the outcome was unknown
	Renewed   Outcome = "renewed"   // a step that is called again under a new key
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
	Unchanged Outcome = "unchanged" // it was so already; no record
	Refused   Outcome = "refused"   // its status does not allow the verb
	Moved     Outcome = "moved"     // it is not what the Ref says was looked at
	Early     Outcome = "early"     // a call may still be sent: see [Result.RetryAfter]
	Idle      Outcome = "idle"      // no job has the turn in the lane, or the gate holds nothing
	Absent    Outcome = "absent"    // there is no such thing: it has finished, was deleted, or was never there
)

var (
	idle     = []Outcome{Unchanged, Refused, Moved, Early, Idle, Absent}
	outcomes = append([]Outcome{Retried, Cancelled, Discarded, Settled, Renewed, Unblocked, Changed, Paused, Resumed, Enqueued, Deleted,
		Forgotten, Replayed, Reset, Released}, idle...)
)

// A Result is the answer of a verb about one thing. Refusals are answers, not errors: with two operators at work they are to be expected.
type Result struct {
	Outcome Outcome `json:"outcome"`
	// DryRun says that nothing was changed, whatever the outcome is.
	DryRun bool `json:"dry_run,omitzero"`
	// JobID is the job that the verb is about, or that belongs to the thing: the head of a lane, the owner of a delivery, the job that a schedule
	// enqueued. 0: none.
	JobID int64 `json:"job_id,omitzero"`
	// Was is what stood there before: a status, the mode of a queue, "on" or "off" of its archive, the policy of a lane, the number of a
	// sequence gate. Empty: nothing, or it is not known.
	Was string `json:"was,omitzero"`
	// Now is what stands there after a change of a step or a sequence gate.
	Now string `json:"now,omitzero"`
	// Fence is that of a step now, if it has moved.
	Fence int64 `json:"fence,omitzero"`
	// ProviderKey is the new key of a step that is called again.
	ProviderKey string `json:"provider_key,omitzero"`
	// RetryAfter is how long to wait, if it is early.
	RetryAfter time.Duration `json:"-"`
	// Hint is the next step. It is set if nothing changed.
	Hint string `json:"hint,omitzero"`
}

// Changed reports whether the verb did what it says, or in a dry run would have.
func (r Result) Changed() bool { return !slices.Contains(idle, r.Outcome) }

// MarshalJSON writes RetryAfter as retry_after_ms.
func (r Result) MarshalJSON() ([]byte, error) {
	type plain Result
	return json.Marshal(struct {
		plain
		RetryAfterMS int64 `json:"retry_after_ms,omitzero"`
	}{plain(r), r.RetryAfter.Milliseconds()})
}

// A Tally is the answer of a verb about many things.
type Tally struct {
	DryRun  bool `json:"dry_run"` // nothing was changed: see Matched
	Matched int  `json:"matched"` // when it began; a purge counts them in a dry run only
	Done    int  `json:"done"`    // each with its record; of a purge the rows that are deleted, with one record
	Refused int  `json:"refused"` // changed by others in between, or never fit for the verb
	Absent  int  `json:"absent"`  // finished or discarded in between
	Locked  int  `json:"locked"`  // an open transaction had them
}

// Seen counts those that have been looked at.
func (t Tally) Seen() int { return t.Done + t.Refused + t.Absent + t.Locked }
