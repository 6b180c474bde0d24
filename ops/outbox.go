package ops

import (
	"context"
	"time"

	"github.com/pawl-go/pawl/internal/contract"
)

// An OutboxEvent is an event that is not published yet. The verbs for jobs change it, by its JobID, and those for lanes its
// aggregate, by its queue "outbox/SINK" and its lane.
type OutboxEvent struct {
	JobID                      int64
	Sink, EventID, EventType   string
	AggregateType, AggregateID string // empty: no order
	Status                     Status
	Attempts                   int
	LastError                  string
	CreatedAt                  time.Time
	ReadAt                     time.Time // the database's clock at the reading
}

// An OutboxFilter selects events. The zero value selects the oldest 50 of all.
type OutboxFilter struct {
	Sink, EventType string
	Status          Status
	After           int64 // only job ids above it: the last of the page before; not for heads
	Limit           int   // default 50, at most 1000
}

// OutboxEvents returns events that are not published yet, dead letters included, in the order of their job ids. A page shorter
// than the limit is the last.
//
// Errors: [pawl.ErrArgumentInvalid].
func OutboxEvents(ctx context.Context, db DB, f OutboxFilter) ([]OutboxEvent, error) {
	args, err := f.args()
	if err != nil {
		return nil, err
	}
	rows, err := contract.OutboxPending(ctx, db, args)
	if err != nil {
		return nil, err
	}
	events := make([]OutboxEvent, len(rows))
	for i, r := range rows {
		events[i] = outboxEventOf(r)
	}
	return events, nil
}

// An OutboxHead is the event that an aggregate waits for.
type OutboxHead struct {
	OutboxEvent
	Lane    string // of the aggregate
	Policy  string // what a dead letter does that is the head: "block", "park" or "skip"
	Waiting int    // events behind it
}

// OutboxHeads returns the first event of each aggregate, oldest first.
//
// Errors: [pawl.ErrArgumentInvalid].
func OutboxHeads(ctx context.Context, db DB, f OutboxFilter) ([]OutboxHead, error) {
	args, err := f.args()
	if err != nil {
		return nil, err
	}
	rows, err := contract.OutboxHeads(ctx, db, args)
	if err != nil {
		return nil, err
	}
	heads := make([]OutboxHead, len(rows))
	for i, r := range rows {
		heads[i] = OutboxHead{outboxEventOf(r.OutboxPendingRow), r.Lane, r.Policy, r.Waiting}
	}
	return heads, nil
}

// An OutboxLag says how far a sink is behind with one type of event.
type OutboxLag struct {
	Sink, EventType string
	Pending, Dead   int       // to be published; dead letters
	Oldest          time.Time // of those to be published; zero: none
	ReadAt          time.Time // the database's clock at the reading
}

// Behind is the age of the oldest event to be published.
func (l OutboxLag) Behind() time.Duration {
	if l.Oldest.IsZero() {
		return 0
	}
	return l.ReadAt.Sub(l.Oldest)
}

// OutboxLags returns the lag of one sink, or of all if it is empty, by event type. It reads all that is pending.
func OutboxLags(ctx context.Context, db DB, sink string) ([]OutboxLag, error) {
	rows, err := contract.OutboxLag(ctx, db, sink)
	if err != nil {
		return nil, err
	}
	lags := make([]OutboxLag, len(rows))
	for i, r := range rows {
		lags[i] = OutboxLag{Sink: r.Sink, EventType: r.EventType, Pending: r.Pending, Dead: r.Dead, ReadAt: r.ReadAt}
		if r.Oldest != nil {
			lags[i].Oldest = *r.Oldest
		}
	}
	return lags, nil
}

func (f OutboxFilter) args() (contract.OutboxListArgs, error) {
	jobs := Filter{Limit: f.Limit}
	if f.Status != "" {
		jobs.Statuses = []Status{f.Status}
	}
	if err := jobs.check(); err != nil {
		return contract.OutboxListArgs{}, err
	}
	if f.Limit == 0 {
		f.Limit = defaultLimit
	}
	return contract.OutboxListArgs{Sink: f.Sink, EventType: f.EventType, Status: string(f.Status), After: f.After, Limit: f.Limit}, nil
}

func outboxEventOf(r contract.OutboxPendingRow) OutboxEvent {
	e := OutboxEvent{JobID: r.JobID, Sink: r.Sink, EventID: r.EventID, EventType: r.EventType, Status: Status(r.Status),
		Attempts: r.Attempts, CreatedAt: r.CreatedAt, ReadAt: r.ReadAt}
	e.AggregateType, e.AggregateID, e.LastError = textOf(r.AggregateType), textOf(r.AggregateID), textOf(r.LastError)
	return e
}

func textOf(text *string) string {
	if text == nil {
		return ""
	}
	return *text
}
