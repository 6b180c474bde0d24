package contract

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// BacklogRow is one row of pawl_v1.backlog.
type BacklogRow struct {
	Queue                                                     string
	Due, Later, Waiting, Processing, Dead, Unknown, Cancelled int
	DueSince                                                  *time.Time
	LanesBlocked                                              int
	Mode                                                      string    // of the queue: "running", "draining" or "paused"
	ReadAt                                                    time.Time // the database's clock
}

// Backlog reads pawl_v1.backlog in the order of the queues.
func Backlog(ctx context.Context, db DB) ([]BacklogRow, error) {
	return Look(ctx, db, "backlog", `select b.queue, b.due, b.later, b.waiting, b.processing, b.dead, b.unknown, b.cancelled, b.due_since,
       b.lanes_blocked, b.mode, clock_timestamp()
  from pawl_v1.backlog as b
 order by b.queue`, nil, func(row pgx.CollectableRow) (r BacklogRow, err error) {
		err = row.Scan(&r.Queue, &r.Due, &r.Later, &r.Waiting, &r.Processing, &r.Dead, &r.Unknown, &r.Cancelled, &r.DueSince, &r.LanesBlocked, &r.Mode, &r.ReadAt)
		return r, err
	})
}

// ConsumerRow is one row of pawl.consumer.
type ConsumerRow struct {
	Name            string
	Window, Horizon time.Duration // 0: null
	SeenAt          time.Time
}

// Consumers reads pawl.consumer by name.
func Consumers(ctx context.Context, db DB) ([]ConsumerRow, error) {
	return Look(ctx, db, "consumer.list", "select c.name, coalesce(c.window_ms, 0), coalesce(c.horizon_ms, 0), c.seen_at from pawl.consumer as c order by c.name", nil,
		func(row pgx.CollectableRow) (r ConsumerRow, err error) {
			var window, horizon int64
			err = row.Scan(&r.Name, &window, &horizon, &r.SeenAt)
			r.Window, r.Horizon = time.Duration(window)*time.Millisecond, time.Duration(horizon)*time.Millisecond
			return r, err
		})
}

// PresenceFree is whether worker w says that it holds its presence lock, and nobody does.
const PresenceFree = `(w.presence and not exists (
         select from pg_catalog.pg_locks as l
          where l.locktype = 'advisory'
            and l.database = (select d.oid from pg_catalog.pg_database as d where d.datname = current_database())
            and l.classid = 1885435757
            and l.objid = pawl_v1._presence(w.id)::oid
            and l.objsubid = 2
            and l.granted))`

// WorkerRow is one row of pawl.worker.
type WorkerRow struct {
	ID             int64
	Name           string
	SeenAt         time.Time
	LeaseExpiresAt time.Time
	Presence       bool
	Gone           bool // its presence lock is free, and it is silent
	Held           int  // jobs
	ReadAt         time.Time
}

// Workers reads pawl.worker by name and id, and the server's locks. A worker is gone by the evidence that a sweep goes by, too: silent
// for 1.5 s, which one that has just lost its session is not, and its presence lock free.
func Workers(ctx context.Context, db DB) ([]WorkerRow, error) {
	return Look(ctx, db, "worker.list", `select w.id, w.name, w.seen_at, w.seen_at + w.lease, w.presence,
       w.seen_at < clock_timestamp() - interval '1500 milliseconds' and `+PresenceFree+`, h.held, clock_timestamp()
  from pawl.worker as w
 cross join lateral (select count(*) as held from pawl.job as j where j.claimed_by = w.id) as h
 order by w.name, w.id`, nil, func(row pgx.CollectableRow) (r WorkerRow, err error) {
		err = row.Scan(&r.ID, &r.Name, &r.SeenAt, &r.LeaseExpiresAt, &r.Presence, &r.Gone, &r.Held, &r.ReadAt)
		return r, err
	})
}

// UnknownRow counts what needs a verdict, and the database's oldest snapshot.
type UnknownRow struct {
	Commands, StaleCommands, Effects int
	OldestSnapshot                   *time.Time // of any session of this database; null: none, or not ours to see
	XminAge                          int64      // transactions that nothing may clean up behind
	ReadAt                           time.Time
}

// Unknown counts in pawl_v1.stale_commands and pawl.effect, and looks at pg_stat_activity.
func Unknown(ctx context.Context, db DB) (r UnknownRow, err error) {
	err = lookOne(ctx, db, "status", `select
  (select count(*) from pawl_v1.stale_commands as c where c.status = 'unknown'),
  (select count(*) from pawl_v1.stale_commands as c where c.status <> 'unknown'),
  (select count(*) from pawl.effect as e where e.status = 'unknown'),
  (select min(a.xact_start) from pg_catalog.pg_stat_activity as a
    where a.datname = current_database() and a.backend_xmin is not null and a.pid <> pg_backend_pid()),
  (select coalesce(max(age(a.backend_xmin)), 0) from pg_catalog.pg_stat_activity as a
    where a.datname = current_database() and a.backend_xmin is not null and a.pid <> pg_backend_pid()),
  clock_timestamp()`, nil, &r.Commands, &r.StaleCommands, &r.Effects, &r.OldestSnapshot, &r.XminAge, &r.ReadAt)
	return r, err
}
