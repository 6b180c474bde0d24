package contract

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
)

// OutboxAppendArgs are the arguments of outbox_append.
type OutboxAppendArgs struct {
	Sink, Type                 string
	AggregateType, AggregateID string
	Payload                    []byte
	Scope, Key                 string
	Fingerprint                pawl.Fingerprint
	KeyTTL                     time.Duration
	MaxAttempts                int
	Headers                    map[string]string
	LanePolicy                 string // of an aggregate without events
}

// OutboxAppendRow is the answer of outbox_append.
type OutboxAppendRow struct {
	Outcome string // "appended" or "duplicate"
	EventID string
	JobID   int64
}

// OutboxAppend calls pawl_v1.outbox_append.
func OutboxAppend(ctx context.Context, db DB, a OutboxAppendArgs) (OutboxAppendRow, error) {
	o := Options{}
	set(o, "scope", a.Scope)
	set(o, "key", a.Key)
	if !a.Fingerprint.IsZero() {
		o["hash"] = a.Fingerprint.String()
	}
	set(o, "key_ttl_ms", a.KeyTTL.Milliseconds())
	set(o, "max_attempts", a.MaxAttempts)
	set(o, "lane_policy", a.LanePolicy)
	if len(a.Headers) > 0 {
		o["headers"] = a.Headers
	}
	var r OutboxAppendRow
	err := one(ctx, db, "outbox.append",
		"select a.outcome, a.event_id, a.job_id from pawl_v1.outbox_append($1, $2, $3, $4, $5, $6::pg_catalog.jsonb) as a",
		[]any{a.Sink, a.Type, given(a.AggregateType), given(a.AggregateID), octets(a.Payload), o.exact()},
		&r.Outcome, &r.EventID, &r.JobID)
	return r, err
}

// OutboxAppendMany calls pawl_v1.outbox_append_many. All keys are remembered for keyTTL, all new lanes have one policy.
func OutboxAppendMany(ctx context.Context, db DB, events []OutboxAppendArgs, keyTTL time.Duration, lanePolicy string) ([]OutboxAppendRow, error) {
	n := len(events)
	var (
		sinks, types              = make([]string, n), make([]string, n)
		aggregateTypes, aggregate = make([]*string, n), make([]*string, n)
		payloads, hashes          = make([][]byte, n), make([][]byte, n)
		scopes, keys, headers     = make([]*string, n), make([]*string, n), make([]*string, n)
		maxAttempts               = make([]*int32, n)
	)
	for i, e := range events {
		sinks[i], types[i], payloads[i] = e.Sink, e.Type, octets(e.Payload)
		aggregateTypes[i], aggregate[i] = given(e.AggregateType), given(e.AggregateID)
		scopes[i], keys[i], maxAttempts[i] = given(e.Scope), given(e.Key), given(int32(e.MaxAttempts))
		if !e.Fingerprint.IsZero() {
			hashes[i] = e.Fingerprint[:]
		}
		if len(e.Headers) > 0 {
			o := Options{}
			for name, value := range e.Headers {
				o[name] = value
			}
			headers[i] = given(o.exact())
		}
	}
	o := Options{}
	set(o, "key_ttl_ms", keyTTL.Milliseconds())
	set(o, "lane_policy", lanePolicy)
	return many(ctx, db, "outbox.append", `select a.outcome, a.event_id, a.job_id
  from pawl_v1.outbox_append_many($1, $2, $3, $4, $5, $6, $7, $8, $9, $10::pg_catalog.jsonb[], $11::pg_catalog.jsonb) as a
 order by a.n`,
		[]any{sinks, types, aggregateTypes, aggregate, payloads, scopes, keys, hashes, maxAttempts, headers, o.text()},
		func(row pgx.CollectableRow) (r OutboxAppendRow, err error) {
			err = row.Scan(&r.Outcome, &r.EventID, &r.JobID)
			return r, err
		})
}

// OutboxPendingRow is one row of pawl_v1.outbox_pending.
type OutboxPendingRow struct {
	JobID                      int64
	Sink, EventID, EventType   string
	AggregateType, AggregateID *string // null: no order
	Status                     string
	Attempts                   int
	LastError                  *string
	CreatedAt                  time.Time
	ReadAt                     time.Time // the database's clock
}

// OutboxListArgs select rows of pawl_v1.outbox_pending or outbox_heads; a zero field selects all.
type OutboxListArgs struct {
	Sink, EventType, Status string
	After                   int64
	Limit                   int
}

// OutboxPending reads pawl_v1.outbox_pending in the order of the ids.
func OutboxPending(ctx context.Context, db DB, a OutboxListArgs) ([]OutboxPendingRow, error) {
	return Look(ctx, db, "outbox.list", `select p.job_id, p.sink, p.event_id, p.event_type, p.aggregate_type, p.aggregate_id, p.status,
       p.attempt_count, p.last_error, p.created_at, clock_timestamp()
  from pawl_v1.outbox_pending as p
 where p.job_id > $1
   and ($3::text = '' or p.sink = $3)
   and ($4::text = '' or p.event_type = $4)
   and ($5::text = '' or p.status = $5)
 order by p.job_id
 limit $2`, []any{a.After, a.Limit, a.Sink, a.EventType, a.Status}, func(row pgx.CollectableRow) (r OutboxPendingRow, err error) {
		err = row.Scan(&r.JobID, &r.Sink, &r.EventID, &r.EventType, &r.AggregateType, &r.AggregateID, &r.Status, &r.Attempts,
			&r.LastError, &r.CreatedAt, &r.ReadAt)
		return r, err
	})
}

// OutboxLagRow is one row of pawl_v1.outbox_lag.
type OutboxLagRow struct {
	Sink, EventType string
	Pending, Dead   int
	Oldest          *time.Time // null: only dead letters
	ReadAt          time.Time  // the database's clock
}

// OutboxLag reads pawl_v1.outbox_lag; an empty sink means all.
func OutboxLag(ctx context.Context, db DB, sink string) ([]OutboxLagRow, error) {
	return Look(ctx, db, "outbox.lag", `select l.sink, l.event_type, l.pending, l.dead, l.oldest, clock_timestamp()
  from pawl_v1.outbox_lag as l
 where $1::text = '' or l.sink = $1
 order by l.sink, l.event_type`, []any{sink}, func(row pgx.CollectableRow) (r OutboxLagRow, err error) {
		err = row.Scan(&r.Sink, &r.EventType, &r.Pending, &r.Dead, &r.Oldest, &r.ReadAt)
		return r, err
	})
}

// OutboxHeadRow is one row of pawl_v1.outbox_heads.
type OutboxHeadRow struct {
	OutboxPendingRow
	Lane, Policy string
	Waiting      int
}

// OutboxHeads reads pawl_v1.outbox_heads, the oldest first.
func OutboxHeads(ctx context.Context, db DB, a OutboxListArgs) ([]OutboxHeadRow, error) {
	return Look(ctx, db, "outbox.heads", `select h.job_id, h.sink, h.lane, h.event_type, h.aggregate_type, h.aggregate_id, h.policy, h.status,
       h.attempt_count, h.last_error, h.created_at, h.waiting, clock_timestamp()
  from pawl_v1.outbox_heads as h
 where ($2::text = '' or h.sink = $2)
   and ($3::text = '' or h.event_type = $3)
   and ($4::text = '' or h.status = $4)
 order by h.created_at, h.job_id
 limit $1`, []any{a.Limit, a.Sink, a.EventType, a.Status}, func(row pgx.CollectableRow) (r OutboxHeadRow, err error) {
		err = row.Scan(&r.JobID, &r.Sink, &r.Lane, &r.EventType, &r.AggregateType, &r.AggregateID, &r.Policy, &r.Status,
			&r.Attempts, &r.LastError, &r.CreatedAt, &r.Waiting, &r.ReadAt)
		return r, err
	})
}
