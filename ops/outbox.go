package ops

import (
	"context"
	"encoding/json"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/catalog"
)

// An OutboxEvent is an event that is not published yet. It is a job, and its aggregate a lane of queue "outbox/SINK": change it with
// [JobRef] and [LaneRef].
type OutboxEvent struct {
	JobID         int64     `json:"job_id"`
	Sink          string    `json:"sink"`
	EventID       string    `json:"event_id"`
	EventType     string    `json:"event_type"`
	AggregateType string    `json:"aggregate_type,omitzero"` // empty: no order
	AggregateID   string    `json:"aggregate_id,omitzero"`
	Status        Status    `json:"status"`
	Attempts      int       `json:"attempts"`
	LastError     string    `json:"last_error,omitzero"`
	CreatedAt     time.Time `json:"created_at"`
	Lane          string    `json:"lane,omitzero"`    // of the aggregate; of heads only, as all below
	Policy        string    `json:"policy,omitzero"`  // what a dead letter does that is the head: "block", "park" or "skip"
	Waiting       int       `json:"waiting,omitzero"` // events behind it
	ReadAt        time.Time `json:"read_at"`          // the database's clock at the reading
}

// Outbox selects events that are not published yet, dead letters included. The zero value selects all.
type Outbox struct {
	Sink, EventType string
	Statuses        []Status // empty: any
	Heads           bool     // only the event that each aggregate waits for
	After           string   // only those behind this one: [Page.Next] of the page before
	Limit           int      // of List: default 50, at most 1000
}

// List returns events in the order of their job ids; heads in the order in which they were appended.
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
	if err == nil {
		err = known(op, JobStatuses(), s.Statuses)
	}
	if err != nil {
		return Page[OutboxEvent]{}, err
	}
	rows, err := catalog.Outbox[OutboxEvent](ctx, db, catalog.OutboxQuery{Sink: s.Sink, EventType: s.EventType, Statuses: texts(s.Statuses), Heads: s.Heads, Page: page})
	return cut(rows, page, cursor), err
}

// An OutboxLag says how far a sink is behind with one type of event.
type OutboxLag struct {
	Sink      string    `json:"sink"`
	EventType string    `json:"event_type"`
	Pending   int       `json:"pending"`         // to be published
	Dead      int       `json:"dead"`            // dead letters
	Oldest    time.Time `json:"oldest,omitzero"` // of those to be published; zero: none
	ReadAt    time.Time `json:"read_at"`         // the database's clock at the reading
}

// Behind is the age of the oldest event to be published.
func (l OutboxLag) Behind() time.Duration {
	if l.Oldest.IsZero() {
		return 0
	}
	return l.ReadAt.Sub(l.Oldest)
}

// MarshalJSON adds behind_ms.
func (l OutboxLag) MarshalJSON() ([]byte, error) {
	type plain OutboxLag
	return json.Marshal(struct {
		plain
		BehindMS int64 `json:"behind_ms"`
	}{plain(l), l.Behind().Milliseconds()})
}

// Lag returns how far the selected sink is behind, or all of them, by event type. It reads all that is pending; the other fields do not
// count.
func (s Outbox) Lag(ctx context.Context, db pawl.DB) ([]OutboxLag, error) {
	rows, err := catalog.OutboxLag[OutboxLag](ctx, db, s.Sink)
	return listed(rows), err
}

// listed is never nil: an empty array is printed as one.
func listed[T any](rows []T) []T {
	if rows == nil {
		return []T{}
	}
	return rows
}
