package cli

import (
	"encoding/json"
	"time"

	"github.com/pawl-go/pawl/ops"
)

// What --json prints. Fields are only ever added; arrays are never null, times are UTC.

type pageJSON struct {
	Jobs      []jobJSON `json:"jobs"`
	NextAfter *int64    `json:"next_after"` // for --after; null: that was all
}

type jobJSON struct {
	ID          int64     `json:"id"`
	Queue       string    `json:"queue"`
	Kind        string    `json:"kind"`
	Status      string    `json:"status"`
	Priority    int       `json:"priority"`
	Attempts    int       `json:"attempts"`
	MaxAttempts int       `json:"max_attempts"`
	Crashes     int       `json:"crashes"`
	Fence       int64     `json:"fence"`
	AvailableAt time.Time `json:"available_at"`
	CreatedAt   time.Time `json:"created_at"`
	Worker      *string   `json:"worker"`
	LastError   *string   `json:"last_error"`
	ArgsOctets  int       `json:"args_octets"`
	Lane        *string   `json:"lane"` // null: in none
	LastCode    *string   `json:"last_code"`
	MessageKey  *string   `json:"message_key"` // of the delivery that it is
}

type shownJSON struct {
	Jobs     []detailJSON   `json:"jobs"`
	Archived []archivedJSON `json:"archived"` // finished
	Absent   []absentJSON   `json:"absent"`
}

type absentJSON struct {
	ID    int64        `json:"id"`
	Audit []changeJSON `json:"audit"`
}

type detailJSON struct {
	jobJSON
	Headers map[string]any `json:"headers"`
	Args    argsJSON       `json:"args"`
	Errors  []errorJSON    `json:"errors"`
	Holder  *holderJSON    `json:"holder"` // null: no attempt is running
	Audit   []changeJSON   `json:"audit"`
}

type argsJSON struct {
	Octets int     `json:"octets"`
	SHA256 string  `json:"sha256"`
	Base64 []byte  `json:"base64"`
	Text   *string `json:"text"` // null: not UTF-8
}

type errorJSON struct {
	At      time.Time `json:"at"`
	Attempt int       `json:"attempt"`
	Code    *string   `json:"code"`
	Error   string    `json:"error"`
}

type holderJSON struct {
	WorkerID       *int64     `json:"worker_id"` // null: claimed without a worker
	Name           *string    `json:"name"`
	SeenAt         *time.Time `json:"seen_at"`
	LeaseExpiresAt time.Time  `json:"lease_expires_at"`
	Presence       bool       `json:"presence"`
}

type changeJSON struct {
	ID     int64           `json:"id"`
	At     time.Time       `json:"at"`
	Actor  string          `json:"actor"`
	Verb   string          `json:"verb"`
	Reason string          `json:"reason"`
	Before json.RawMessage `json:"before"`
	After  json.RawMessage `json:"after"` // null: deleted
}

type resultsJSON struct {
	Results []resultJSON `json:"results"`
}

type resultJSON struct {
	ID      int64   `json:"id"`
	Outcome string  `json:"outcome"` // retried, cancelled, discarded; refused, absent, locked
	Was     *string `json:"was"`     // the status before
	Hint    *string `json:"hint"`    // the next step, if nothing changed
}

func jobToJSON(j ops.Job) jobJSON {
	return jobJSON{ID: j.ID, Queue: j.Queue, Kind: j.Kind, Status: string(j.Status), Priority: j.Priority, Attempts: j.Attempts,
		MaxAttempts: j.MaxAttempts, Crashes: j.Crashes, Fence: j.Fence, AvailableAt: j.AvailableAt.UTC(),
		CreatedAt: j.CreatedAt.UTC(), Worker: given(j.Worker), LastError: given(j.LastError), ArgsOctets: j.ArgsOctets, Lane: given(j.Lane),
		LastCode: given(j.LastCode), MessageKey: given(j.MessageKey)}
}

func detailToJSON(d ops.Detail) detailJSON {
	out := detailJSON{jobJSON: jobToJSON(d.Job), Headers: d.Headers, Errors: each(d.Errors, errorToJSON),
		Args: payloadToJSON(d.Args), Audit: each(d.Changes, changeToJSON)}
	if out.Headers == nil {
		out.Headers = map[string]any{}
	}
	if h := d.Holder; h != nil {
		out.Holder = &holderJSON{WorkerID: given(h.WorkerID), Name: given(h.Name), SeenAt: given(h.SeenAt.UTC()),
			LeaseExpiresAt: h.LeaseExpiresAt.UTC(), Presence: h.Present}
	}
	return out
}

func errorToJSON(e ops.Error) errorJSON {
	return errorJSON{At: e.At.UTC(), Attempt: e.Attempt, Code: given(e.Code), Error: e.Error}
}

func changeToJSON(c ops.Change) changeJSON {
	return changeJSON{ID: c.ID, At: c.At.UTC(), Actor: c.Actor, Verb: c.Verb, Reason: c.Reason, Before: c.Before, After: c.After}
}

// each is never nil: an empty array is printed as one.
func each[From, To any](all []From, convert func(From) To) []To {
	out := make([]To, len(all))
	for i, one := range all {
		out[i] = convert(one)
	}
	return out
}

// given is nil for a zero value, which prints as null.
func given[T comparable](value T) *T {
	var zero T
	if value == zero {
		return nil
	}
	return &value
}
