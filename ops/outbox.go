package ops

import (
	"cmp"
	"context"
	"encoding/json"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/catalog"
)

// An OutboxEvent is an unpublished event. It is a job, and its aggregate is a lane of queue
// "outbox/SINK": change them with [JobRef] and [LaneRef].
type OutboxEvent struct {
	JobID         int64     `json:"job_id"`
	Sink          string    `json:"sink"`
	EventID       string    `json:"event_id"`
	EventType     string    `json:"event_type"`
	AggregateType string    `json:"aggregate_type,omitzero"` // empty: unordered
	AggregateID   string    `json:"aggregate_id,omitzero"`
	Status        Status    `json:"status"`
	Attempts      int       `json:"attempts"`
	LastError     string    `json:"last_error,omitzero"`
	CreatedAt     time.Time `json:"created_at"`
	// of the aggregate; this field and those below are set for heads only
	Lane string `json:"lane,omitzero"`
	// what a dead letter at the head does: "block", "park" or "skip"
	Policy  string    `json:"policy,omitzero"`
	Waiting int       `json:"waiting,omitzero"` // events behind it
	ReadAt  time.Time `json:"read_at"`          // the database's clock when the row was read
}

// Outbox selects unpublished events, including dead letters. The zero value selects all.
type Outbox struct {
	Sink, EventType string
	Statuses        []Status // empty: any
	Heads           bool     // only the first event of each aggregate, for which the others wait
	After           string   // only rows after this one: [Page.Next] of the previous page
	Limit           int      // for List: default 50, at most 1000
}

// List returns events ordered by job id; heads in the order in which they were appended.
//
// Errors: [pawl.ErrArgumentInvalid].
func (s Outbox) List(ctx context.Context, db pawl.DB) (Page[OutboxEvent], error) {
	const op = "outbox.list"
	order := []func(string) bool{anID}
	cursor := func(e OutboxEvent) []string { return []string{id(e.JobID)} }
	if s.Heads {
		order = []func(string) bool{aTime, anID}
		cursor = func(e OutboxEvent) []string { return []string{instant(e.CreatedAt), id(e.JobID)} }
	}
	page, err := pageOf(op, s.After, s.Limit, order...)
	if err = cmp.Or(err, checkStatuses(op, JobStatuses(), s.Statuses)); err != nil {
		return Page[OutboxEvent]{}, err
	}
	rows, err := catalog.Outbox[OutboxEvent](ctx, db, catalog.OutboxQuery{Sink: s.Sink, EventType: s.EventType, Statuses: texts(s.Statuses), Heads: s.Heads, Page: page})
	return cut(rows, page, cursor), err
}

// An OutboxLag tells how far a sink is behind with one type of event.
type OutboxLag struct {
	Sink      string    `json:"sink"`
	EventType string    `json:"event_type"`
	Pending   int       `json:"pending"`         // to be published
	Dead      int       `json:"dead"`            // dead letters
	Oldest    time.Time `json:"oldest,omitzero"` // of those to be published; zero: none
	ReadAt    time.Time `json:"read_at"`         // the database's clock when the row was read
}

// Behind returns the age of the oldest event to be published.
func (l OutboxLag) Behind() time.Duration {
	if l.Oldest.IsZero() {
		return 0
	}
	return l.ReadAt.Sub(l.Oldest)
}

// MarshalJSON adds behind_ms.
func (l OutboxLag) MarshalJSON() ([]byte, error) {
	type alias OutboxLag
	return json.Marshal(struct {
		alias
		BehindMS int64 `json:"behind_ms"`
	}{alias(l), l.Behind().Milliseconds()})
}

// Lag returns how far the selected sink, or every sink, is behind, by event type. It reads all
// pending events and ignores the other fields.
func (s Outbox) Lag(ctx context.Context, db pawl.DB) ([]OutboxLag, error) {
	rows, err := catalog.OutboxLag[OutboxLag](ctx, db, s.Sink)
	return listed(rows), err
}

// listed returns a non-nil slice, so that JSON has an empty array.
func listed[T any](rows []T) []T {
	if rows == nil {
		return []T{}
	}
	return rows
}
