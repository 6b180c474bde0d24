package contract

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// ArchiveSweepRow is the answer of archive_sweep.
type ArchiveSweepRow struct {
	Outcome string // "swept", "busy"
	Emptied int    // tables
}

// ArchiveSweep calls pawl_v1.archive_sweep, in a transaction at READ COMMITTED.
func ArchiveSweep(ctx context.Context, db DB) (r ArchiveSweepRow, err error) {
	err = one(ctx, db, "archive.sweep", "select s.outcome, s.emptied from pawl_v1.archive_sweep() as s", nil, &r.Outcome, &r.Emptied)
	return r, err
}

// QueueSetRow is the answer of queue_set.
type QueueSetRow struct {
	Outcome string // "changed", "unchanged"
	Archive bool   // what it was
	Mode    string // what it was
}

// QueueSet calls pawl_v1.queue_set; a nil archive and an empty mode leave it as it is.
func QueueSet(ctx context.Context, db DB, queue string, archive *bool, mode, actor, reason string) (r QueueSetRow, err error) {
	o := Options{}
	if archive != nil {
		o["archive"] = *archive
	}
	set(o, "mode", mode)
	err = one(ctx, db, "queue.set", "select s.outcome, (s.detail operator(pg_catalog.->>) 'archive')::boolean, s.detail operator(pg_catalog.->>) 'mode' from pawl_v1.queue_set($1, $2::pg_catalog.jsonb, $3, $4) as s",
		[]any{queue, o.text(), actor, reason}, &r.Outcome, &r.Archive, &r.Mode)
	return r, err
}

// QueueRow is one row of pawl_v1.queues.
type QueueRow struct {
	ID                int64
	Name              string
	Archive           bool
	Mode              string
	Processing, Begun int
}

// QueueList reads pawl_v1.queues in the order of the names.
func QueueList(ctx context.Context, db DB, after string, limit int) ([]QueueRow, error) {
	return Look(ctx, db, "queue.list", `select q.id, q.name, q.archive, q.mode, q.processing, q.begun
  from pawl_v1.queues as q
 where q.name > $1::text
 order by q.name
 limit $2`, []any{after, limit}, func(row pgx.CollectableRow) (r QueueRow, err error) {
		err = row.Scan(&r.ID, &r.Name, &r.Archive, &r.Mode, &r.Processing, &r.Begun)
		return r, err
	})
}

// ArchiveRow is one row of pawl_v1.archive.
type ArchiveRow struct {
	ID                          int64
	Queue, Kind                 string
	Lane                        *string
	Position                    *int64
	Priority, Attempts, Crashes int
	Fence                       int64
	CreatedAt, FinishedAt       time.Time
	Headers                     map[string]any
	Args                        []byte
	ReadAt                      time.Time // the database's clock
}

// ArchiveShow reads one job of the archive. It returns no row if it is not there.
func ArchiveShow(ctx context.Context, db DB, id int64) ([]ArchiveRow, error) {
	return Look(ctx, db, "archive.show", fmt.Sprintf(`select %s, clock_timestamp()
  from pawl_v1.archive as a
 where a.id = $1
 order by a.finished_at desc
 limit 1`, archiveColumns), []any{id}, func(row pgx.CollectableRow) (r ArchiveRow, err error) {
		err = row.Scan(&r.ID, &r.Queue, &r.Kind, &r.Lane, &r.Position, &r.Priority, &r.Attempts, &r.Crashes, &r.Fence,
			&r.CreatedAt, &r.FinishedAt, jsonInto{&r.Headers}, &r.Args, &r.ReadAt)
		return r, err
	})
}

const archiveColumns = `a.id, a.queue, a.kind, a.lane, a.position, a.priority, a.attempts, a.crashes, a.fence,
       a.created_at, a.finished_at, a.headers, a.args`
