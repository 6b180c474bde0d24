package contract

import (
	"context"
)

// ArchiveSweepRow is the result of archive_sweep.
type ArchiveSweepRow struct {
	Outcome string // "swept", "busy"
	Emptied int    // emptied tables
}

// ArchiveSweep calls pawl_v1.archive_sweep, in a transaction at READ COMMITTED.
func ArchiveSweep(ctx context.Context, db DB) (r ArchiveSweepRow, err error) {
	err = one(ctx, db, "archive.sweep", "select s.outcome, s.emptied from pawl_v1.archive_sweep() as s", nil, &r.Outcome, &r.Emptied)
	return r, err
}

// QueueSetRow is the result of queue_set.
type QueueSetRow struct {
	Outcome string // "changed", "unchanged"
	Archive bool   // before the call
	Mode    string // before the call
}

// QueueSet calls pawl_v1.queue_set. A nil archive or an empty mode keeps the current value.
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
