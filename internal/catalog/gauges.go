package catalog

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// JobCountRow counts the jobs of one queue and status.
type JobCountRow struct {
	Queue, Status string
	Jobs          int
	Oldest        time.Time // when the oldest of them was enqueued
	ReadAt        time.Time // the database's clock
}

// JobCounts counts all rows of pawl_v1.jobs.
func JobCounts(ctx context.Context, db DB, limit int) ([]JobCountRow, error) {
	return Look(ctx, db, "job.counts", `select j.queue, j.status, count(*), min(j.created_at), clock_timestamp()
  from pawl_v1.jobs as j
 group by j.queue, j.status
 order by j.queue, j.status
 limit $1`, []any{limit}, func(row pgx.CollectableRow) (r JobCountRow, err error) {
		err = row.Scan(&r.Queue, &r.Status, &r.Jobs, &r.Oldest, &r.ReadAt)
		return r, err
	})
}

// JobDueRow describes the job of a queue that has been due longest.
type JobDueRow struct {
	Queue  string
	Due    time.Time // may lie in the future
	ReadAt time.Time // the database's clock
}

// JobDue returns the earliest due time of each queue with pending jobs. It reads the first job of
// each priority in index job_claim, and skips from queue to queue in that index. So the number of
// rows it reads does not grow with the jobs.
func JobDue(ctx context.Context, db DB, limit int) ([]JobDueRow, error) {
	return Look(ctx, db, "job.due", `with recursive queues (name, n) as (
        (select j.queue::text collate "C", 1
           from pawl.job as j
          where j.status = 'pending'
          order by j.queue
          limit 1)
         union all
        (select n.name, q.n + 1
           from queues as q
          cross join lateral (
                select j.queue::text collate "C" as name
                  from pawl.job as j
                 where j.status = 'pending'
                   and j.queue > q.name
                 order by j.queue
                 limit 1) as n
          where q.n < $1)
       )
select q.name, min(f.available_at), clock_timestamp()
  from queues as q
 cross join generate_series(1, 4) as p (priority)
 cross join lateral (
        select j.available_at
          from pawl.job as j
         where j.status = 'pending'
           and j.queue = q.name
           and j.priority = p.priority
         order by j.available_at
         limit 1) as f
 group by q.name
 order by q.name`, []any{limit}, func(row pgx.CollectableRow) (r JobDueRow, err error) {
		err = row.Scan(&r.Queue, &r.Due, &r.ReadAt)
		return r, err
	})
}

// DeadCountRow counts the jobs of one queue that need an operator.
type DeadCountRow struct {
	Queue, Status string
	Jobs          int
	Heads         int // jobs among them at the head of a lane, which blocks it
}

// DeadCounts counts through index job_dead. The entries it reads grow with the counted and the
// cancelled jobs.
func DeadCounts(ctx context.Context, db DB, limit int) ([]DeadCountRow, error) {
	return Look(ctx, db, "job.dead", `select j.queue, j.status, count(*), count(*) filter (where j.lane_head)
  from pawl.job as j
 where j.status in ('dead_letter', 'unknown')
 group by j.queue, j.status
 order by j.queue, j.status
 limit $1`, []any{limit}, func(row pgx.CollectableRow) (r DeadCountRow, err error) {
		err = row.Scan(&r.Queue, &r.Status, &r.Jobs, &r.Heads)
		return r, err
	})
}

// WorkerCount is the result of WorkerCounts.
type WorkerCount struct {
	All, Alive int // registered; within their lease
	// alive workers that report wake-ups, if the server's settings let enqueues notify
	Wakeable int
}

// WorkerCounts counts the registered workers.
func WorkerCounts(ctx context.Context, db DB) (n WorkerCount, err error) {
	err = lookOne(ctx, db, "worker.counts", `select count(*),
       count(*) filter (where w.seen_at + w.lease > clock_timestamp()),
       count(*) filter (where w.seen_at + w.lease > clock_timestamp()
                          and w.report ->> 'wakeups' = 'on'
                          and current_setting('max_prepared_transactions') = '0')
  from pawl.worker as w`, nil, &n.All, &n.Alive, &n.Wakeable)
	return n, err
}

// QueuesServed reads the names of the queues that live workers serve and that begin with prefix.
func QueuesServed(ctx context.Context, db DB, prefix string, limit int) ([]string, error) {
	return Look(ctx, db, "queues.served", `select distinct q.name
  from pawl.worker as w
 cross join jsonb_array_elements_text(w.queues) as q (name)
 where w.seen_at + w.lease > clock_timestamp()
   and starts_with(q.name, $1)
 order by q.name
 limit $2`, []any{prefix, limit}, pgx.RowTo[string])
}

// StaleCommandCounts counts leased commands through index command_stale: unknown ones, and those
// whose lease has expired.
func StaleCommandCounts(ctx context.Context, db DB) (unknown, overdue int, err error) {
	err = lookOne(ctx, db, "command.stale", `select count(*) filter (where c.status = 'unknown'),
       count(*) filter (where c.status = 'processing' and c.lease_expires_at < clock_timestamp())
  from pawl.command as c
 where c.lease_expires_at is not null`, nil, &unknown, &overdue)
	return unknown, overdue, err
}

// DueJobs selects the jobs for [JobsDue].
type DueJobs struct {
	Queue string
	Kinds []string      // nil: all
	For   time.Duration // due for at least this long
	UpTo  int64         // highest id; 0: all
}

// JobsDue reports whether a queue has a job that a worker could claim now. It reads the first match
// of each priority in index job_claim.
func JobsDue(ctx context.Context, db DB, d DueJobs) (due bool, err error) {
	err = lookOne(ctx, db, "jobs.due", `select exists (
        select
          from generate_series(1, 4) as p (priority)
         cross join lateral (
                select
                  from pawl.job as j
                 where j.queue = $1
                   and j.priority = p.priority
                   and j.status = 'pending'
                   and j.available_at <= clock_timestamp() - $3::interval
                   and ($2::text[] is null or j.kind = any ($2))
                   and ($4 = 0 or j.id <= $4)
                   and (j.attempts > 0 or j.crashes > 0 or not exists (select from pawl.queue as q where q.name = $1 and q.mode = 'draining'))
                 limit 1) as f)
       and not exists (select from pawl.queue as q where q.name = $1 and q.mode = 'paused')`,
		[]any{d.Queue, d.Kinds, d.For, d.UpTo}, &due)
	return due, err
}

// NewestJob returns the highest job id, or 0.
func NewestJob(ctx context.Context, db DB) (id int64, err error) {
	err = lookOne(ctx, db, "job.newest", "select coalesce(max(j.id), 0) from pawl.job as j", nil, &id)
	return id, err
}
