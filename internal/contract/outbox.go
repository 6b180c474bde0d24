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
	Retention                  time.Duration
	MaxAttempts                int
	Headers                    map[string]string
	LanePolicy                 string // of an aggregate without events
}

// OutboxAppendRow is the result of outbox_append.
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
	set(o, "retention_ms", a.Retention.Milliseconds())
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

// OutboxAppendMany calls pawl_v1.outbox_append_many. retention applies to all keys, and lanePolicy
// to all new lanes.
func OutboxAppendMany(ctx context.Context, db DB, events []OutboxAppendArgs, retention time.Duration, lanePolicy string) ([]OutboxAppendRow, error) {
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
	set(o, "retention_ms", retention.Milliseconds())
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
