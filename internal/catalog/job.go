package catalog

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/internal/watched"
)

// JobQuery selects rows of pawl_v1.jobs. A zero field matches all.
type JobQuery struct {
	Queue, Kind string
	Statuses    []string
	Error       string   // the last error contains it
	NotCodes    []string // the last error has none of these codes
	OlderThan   time.Duration
	Page
}

func (a JobQuery) query() *query {
	q := &query{from: "pawl_v1.jobs as r"}
	q.equal("r.queue", a.Queue)
	q.equal("r.kind", a.Kind)
	q.among("r.status", a.Statuses)
	if a.Error != "" {
		q.only("position(%s::text in r.last_error) > 0", a.Error)
	}
	if len(a.NotCodes) > 0 {
		q.only("coalesce(r.last_code, '') <> all (%s)", a.NotCodes)
	}
	if a.OlderThan > 0 {
		q.only("r.created_at < clock_timestamp() - %s * interval '1 millisecond'", a.OlderThan.Milliseconds())
	}
	return q
}

var byID = key{"id", "bigint"}

// Jobs reads pawl_v1.jobs, ordered by id.
func Jobs[T any](ctx context.Context, db DB, a JobQuery) ([]T, error) {
	return readPage[T](ctx, db, "job.list", a.query(), a.Page, byID)
}

// JobCount counts the rows that Jobs would read without a limit, and returns the highest id among
// them.
func JobCount(ctx context.Context, db DB, a JobQuery) (count int, last int64, err error) {
	q := a.query()
	err = lookOne(ctx, db, "job.count", "select count(*), coalesce(max(r.id), 0) from "+q.text(), q.args, &count, &last)
	return count, last, err
}

// JobCauses groups the first rows that Jobs would read by queue, kind and last error, largest
// groups first. In column cause each number is replaced with "…", so that errors that differ only
// in an id or address are grouped together.
func JobCauses[T any](ctx context.Context, db DB, a JobQuery, first, groups int) ([]T, error) {
	q := a.query()
	a.Limit = first
	jobs := q.page(a.Page, byID)
	q.args = append(q.args, groups)
	return lookRows[T](ctx, db, "job.causes", fmt.Sprintf(`(
  select s.queue, s.kind, s.cause, count(*) as jobs
    from (
      select r.queue, r.kind, regexp_replace(left(coalesce(r.last_error, ''), 200), '[0-9]+', '…', 'g') as cause
        from %s) as s
   group by s.queue, s.kind, s.cause
  ) as r
 order by r.jobs desc, r.queue collate "C", r.kind collate "C", r.cause collate "C"
 limit $%d`, jobs, len(q.args)), q.args...)
}

// JobIDs reads the ids of the rows that Jobs would read.
func JobIDs(ctx context.Context, db DB, a JobQuery) ([]int64, error) {
	q := a.query()
	text := q.page(a.Page, byID)
	return Look(ctx, db, "job.list", "select r.id from "+text, q.args, pgx.RowTo[int64])
}

// Job reads one job and its worker. It returns no row if the job does not exist.
func Job[T any](ctx context.Context, db DB, id int64) ([]T, error) {
	return lookWhole[T](ctx, db, "job.get", `(
  select j.*, s.payload, s.headers, s.last_errors as errors, s.position, null::timestamptz as finished_at,
         w.id as worker_id, nullif(w.seen_at, '-infinity') as worker_seen_at, w.presence as worker_presence,
         coalesce(nullif(w.seen_at, '-infinity') + w.lease, s.lease_expires_at) as lease_expires_at
    from pawl_v1.jobs as j
    join pawl.job as s on s.id = j.id
    left join pawl.worker as w on w.id = s.claimed_by
   where j.id = $1
  ) as r`, id)
}

// ArchivedJob reads one job of the archive. It returns no row if the archive does not have it.
func ArchivedJob[T any](ctx context.Context, db DB, id int64) ([]T, error) {
	return lookWhole[T](ctx, db, "job.archived", `(
  select a.*, 'succeeded' as status, null::int as max_attempts, null::timestamptz as available_at, null::text as worker, null::text as last_error,
         null::text as last_code, octet_length(a.payload) as payload_octets, a.headers ->> 'pawl-key' as message_key, null::jsonb as errors,
         null::bigint as worker_id, null::timestamptz as worker_seen_at, null::boolean as worker_presence, null::timestamptz as lease_expires_at
    from pawl_v1.archive as a
   where a.id = $1
   order by a.finished_at desc
   limit 1
  ) as r`, id)
}

// JobQueue returns the queue of a job, or "" if the job does not exist. For readOn, see
// [watched.ReadOn].
func JobQueue(ctx context.Context, db DB, id int64) (queue, readOn string, err error) {
	err = lookOne(ctx, db, "job.queue", "select coalesce((select j.queue from pawl.job as j where j.id = $1), ''), "+watched.ReadOn, []any{id}, &queue, &readOn)
	return queue, readOn, err
}
