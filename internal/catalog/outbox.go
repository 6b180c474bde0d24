package catalog

import "context"

// OutboxQuery selects events that are not published yet. A zero field matches all.
type OutboxQuery struct {
	Sink, EventType string
	Statuses        []string
	Heads           bool // only the first of each aggregate
	Page
}

// Outbox reads pawl_v1.outbox_pending ordered by job id, or pawl_v1.outbox_heads, oldest first.
func Outbox[T any](ctx context.Context, db DB, a OutboxQuery) ([]T, error) {
	q := &query{from: `(
  select p.*, p.attempt_count as attempts, null::text as lane, null::text as policy, null::bigint as waiting
    from pawl_v1.outbox_pending as p
  ) as r`}
	order := []key{{"job_id", "bigint"}}
	if a.Heads {
		q.from = `(
  select h.*, h.attempt_count as attempts, p.event_id
    from pawl_v1.outbox_heads as h
    join pawl_v1.outbox_pending as p on p.job_id = h.job_id
  ) as r`
		order = []key{{"created_at", "timestamptz"}, {"job_id", "bigint"}}
	}
	q.equal("r.sink", a.Sink)
	q.equal("r.event_type", a.EventType)
	q.among("r.status", a.Statuses)
	return readPage[T](ctx, db, "outbox.list", q, a.Page, order...)
}

// OutboxLag reads pawl_v1.outbox_lag. An empty sink matches all.
func OutboxLag[T any](ctx context.Context, db DB, sink string) ([]T, error) {
	return lookRows[T](ctx, db, "outbox.lag", `pawl_v1.outbox_lag as r
 where $1::text = '' or r.sink = $1
 order by r.sink, r.event_type`, sink)
}
