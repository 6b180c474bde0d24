package catalog

import "context"

// Consumers reads pawl.consumer, ordered by name.
func Consumers[T any](ctx context.Context, db DB) ([]T, error) {
	return lookRows[T](ctx, db, "consumer.list", "pawl.consumer as r order by r.name")
}

// PresenceFree is a condition: worker w reports that it holds its presence lock, but the lock is
// free.
const PresenceFree = `(w.presence and not exists (
         select from pg_catalog.pg_locks as l
          where l.locktype = 'advisory'
            and l.database = (select d.oid from pg_catalog.pg_database as d where d.datname = current_database())
            and l.classid = 1885435757
            and l.objid = pawl_v1._presence(w.id)::oid
            and l.objsubid = 2
            and l.granted))`

// Workers reads pawl.worker, ordered by name and id, and the server's locks. A worker is gone by
// the same evidence that a sweep uses: its presence lock is free, and it was silent for 1.5 s. A
// worker that has just lost its session is silent for less. A worker that has left is not returned,
// even before a sweep removes its row.
func Workers[T any](ctx context.Context, db DB) ([]T, error) {
	return lookRows[T](ctx, db, "worker.list", `(
  select w.id, w.name, w.seen_at, w.seen_at + w.lease as lease_expires_at, w.presence, h.held,
         case when w.seen_at < clock_timestamp() - interval '1500 milliseconds' and `+PresenceFree+` then 'gone'
              when w.seen_at + w.lease > clock_timestamp() then 'alive'
              else 'silent'
         end as state
    from pawl.worker as w
   cross join lateral (select count(*) as held from pawl.job as j where j.claimed_by = w.id) as h
   where isfinite(w.seen_at)
  ) as r
 order by r.name, r.id`)
}

// Standing counts calls and commands that need a verdict, in pawl_v1.stale_commands and pawl.step.
// It also reads the database's oldest snapshot from pg_stat_activity.
func Standing[T any](ctx context.Context, db DB) ([]T, error) {
	return lookRows[T](ctx, db, "status", `(
  select (select count(*) from pawl_v1.stale_commands as c where c.status = 'unknown') as unknown_commands,
         (select count(*) from pawl_v1.stale_commands as c where c.status <> 'unknown') as stale_commands,
         (select count(*) from pawl.step as e where e.status = 'unknown') as unknown_steps,
         min(a.xact_start) as oldest_snapshot,
         coalesce(max(age(a.backend_xmin)), 0) as xmin_age
    from pg_catalog.pg_stat_activity as a
   where a.datname = current_database() and a.backend_xmin is not null and a.pid <> pg_backend_pid()
  ) as r`)
}
