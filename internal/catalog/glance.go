package catalog

import (
	"context"

	"github.com/pawl-go/pawl"
)

// GlanceLimit is how far a glance counts. Counting a million rows takes seconds, and an operator
// decides the same at 10,000.
const GlanceLimit = 10_000

// glanceStop is GlanceLimit + 1, for SQL.
const glanceStop = "10001"

// Glance counts the jobs of each queue, each status up to GlanceLimit + 1. It reads a bounded
// number of index entries a queue. It finds queue names by skipping from one to the next in an
// index, at most 1000 of each source.
func Glance[T any](ctx context.Context, db DB) (all []T, err error) {
	err = bounded(ctx, db, func(db DB) (err error) {
		all, err = lookRows[T](ctx, db, "queue.glance", glance)
		return err
	})
	return all, err
}

// Counts that stop early need plans that walk an index; a sequential scan cannot stop early. JIT is
// off because compiling such a plan took ten times as long as running it.
const (
	boundSQL = `select pg_catalog.set_config('pawl.jit', pg_catalog.current_setting('jit'), true), pg_catalog.set_config('jit', 'off', true),
       pg_catalog.set_config('pawl.seqscan', pg_catalog.current_setting('enable_seqscan'), true), pg_catalog.set_config('enable_seqscan', 'off', true),
       pg_catalog.set_config('pawl.bitmapscan', pg_catalog.current_setting('enable_bitmapscan'), true), pg_catalog.set_config('enable_bitmapscan', 'off', true)`
	unboundSQL = `select pg_catalog.set_config('jit', pg_catalog.current_setting('pawl.jit'), true),
       pg_catalog.set_config('enable_seqscan', pg_catalog.current_setting('pawl.seqscan'), true),
       pg_catalog.set_config('enable_bitmapscan', pg_catalog.current_setting('pawl.bitmapscan'), true)`
)

// bounded runs reads whose plans walk indexes, in the caller's transaction or in its own, and
// restores the settings.
func bounded(ctx context.Context, db DB, do func(DB) error) error {
	return within(ctx, db, func(db DB) error {
		var was [6]string
		if err := db.QueryRow(ctx, boundSQL).Scan(&was[0], &was[1], &was[2], &was[3], &was[4], &was[5]); err != nil {
			return pawl.Wrap("queue.glance", err)
		}
		if err := do(db); err != nil {
			return err
		}
		return pawl.Wrap("queue.glance", db.QueryRow(ctx, unboundSQL).Scan(&was[0], &was[1], &was[2]))
	})
}

// glance has the same columns as queues.
const glance = `(
  with recursive pending as (
    (select j.queue, 1 as n from pawl.job as j where j.status = 'pending' order by j.queue limit 1)
    union all
    select (select j.queue from pawl.job as j where j.status = 'pending' and j.queue > p.queue order by j.queue limit 1), p.n + 1
      from pending as p
     where p.queue is not null and p.n < 1000
  ), ended as (
    (select j.queue, 1 as n from pawl.job as j where j.status in ('dead_letter', 'unknown', 'cancelled') order by j.queue limit 1)
    union all
    select (select j.queue from pawl.job as j where j.status in ('dead_letter', 'unknown', 'cancelled') and j.queue > e.queue order by j.queue limit 1), e.n + 1
      from ended as e
     where e.queue is not null and e.n < 1000
  ), held as (
    select h.queue, count(*) as n
      from (select j.queue from pawl.job as j where j.claimed_by is not null limit ` + glanceStop + `) as h
     group by h.queue
  ), waiting as (
    select l.queue, count(*) as n
      from (select j.lane_id from pawl.job as j where j.status = 'waiting' limit ` + glanceStop + `) as w
      join pawl.lane as l on l.id = w.lane_id
     group by l.queue
  ), named as (
    select p.queue as name from pending as p where p.queue is not null
     union select e.queue from ended as e where e.queue is not null
     union select h.queue from held as h
     union select w.queue from waiting as w
     union select q.name from pawl.queue as q
  )
  select n.name, q.id, coalesce(q.mode, 'running') as mode, coalesce(q.archive, false) as archive,
         coalesce(d.due, 0) as due, coalesce(d.later, 0) as later, d.due_since,
         coalesce(w.n, 0) as waiting, coalesce(h.n, 0) as processing,
         coalesce(b.begun, 0) as begun, coalesce(e.dead, 0) as dead, coalesce(e.unknown, 0) as unknown, coalesce(e.cancelled, 0) as cancelled, coalesce(e.blocked, 0) as lanes_blocked
    from named as n
    left join pawl.queue as q on q.name = n.name
    left join held as h on h.queue = n.name
    left join waiting as w on w.queue = n.name
   cross join lateral (
     select sum(c.due) as due, sum(c.later) as later, min(c.since) as due_since
       from generate_series(1, 4) as priority (p)
      cross join lateral (
        select (select count(*)
                  from (select
                          from pawl.job as j
                         where j.status = 'pending' and j.queue = n.name and j.priority = priority.p::smallint and j.available_at <= now()
                         limit ` + glanceStop + `) as s) as due,
               (select count(*)
                  from (select
                          from pawl.job as j
                         where j.status = 'pending' and j.queue = n.name and j.priority = priority.p::smallint and j.available_at > now()
                         limit ` + glanceStop + `) as s) as later,
               (select j.available_at
                  from pawl.job as j
                 where j.status = 'pending' and j.queue = n.name and j.priority = priority.p::smallint and j.available_at <= now()
                 order by j.available_at
                 limit 1) as since
      ) as c
   ) as d
   cross join lateral (
     select count(*) as begun
       from (select
               from pawl.job as j
              where j.queue = n.name and j.status = 'pending' and (j.attempts > 0 or j.crashes > 0)
              limit ` + glanceStop + `) as s
   ) as b
   cross join lateral (
     select count(*) filter (where s.status = 'dead_letter') as dead,
            count(*) filter (where s.status = 'unknown') as unknown,
            count(*) filter (where s.status = 'cancelled') as cancelled,
            count(*) filter (where s.status <> 'cancelled' and s.lane_head) as blocked
       from (select j.status, j.lane_head
               from pawl.job as j
              where j.queue = n.name and j.status in ('dead_letter', 'unknown', 'cancelled')
              limit ` + glanceStop + `) as s
   ) as e
  ) as r
 order by r.name`

// GlanceStanding is Standing with counts up to GlanceLimit + 1.
func GlanceStanding[T any](ctx context.Context, db DB) (all []T, err error) {
	err = bounded(ctx, db, func(db DB) (err error) {
		all, err = lookRows[T](ctx, db, "status", `(
  select c.unknown_commands, c.stale_commands, e.unknown_steps, a.oldest_snapshot, a.xmin_age
    from (
      select count(*) filter (where s.status = 'unknown') as unknown_commands, count(*) filter (where s.status <> 'unknown') as stale_commands
        from (select c.status from pawl_v1.stale_commands as c limit `+glanceStop+`) as s
    ) as c
   cross join (
      select count(*) as unknown_steps from (select from pawl.step as e where e.status = 'unknown' limit `+glanceStop+`) as s
    ) as e
   cross join (
      select min(a.xact_start) as oldest_snapshot, coalesce(max(age(a.backend_xmin)), 0) as xmin_age
        from pg_catalog.pg_stat_activity as a
       where a.datname = current_database() and a.backend_xmin is not null and a.pid <> pg_backend_pid()
    ) as a
  ) as r`)
		return err
	})
	return all, err
}
