package contract

import (
	"context"
	"time"
)

// JobKeyPurgeRow is the answer of job_key_purge.
type JobKeyPurgeRow struct {
	Purged int
	Kept   int // keys whose jobs have not ended
}

// JobKeyPurge calls pawl_v1.job_key_purge; a negative olderThan means its default.
func JobKeyPurge(ctx context.Context, db DB, olderThan time.Duration, limit int) (r JobKeyPurgeRow, err error) {
	err = one(ctx, db, "job_key.purge", "select p.purged, coalesce((p.detail ->> 'kept')::int, 0) from pawl_v1.job_key_purge($1, $2::jsonb) as p",
		[]any{limit, olderThanOption(olderThan).text()}, &r.Purged, &r.Kept)
	return r, err
}

// ReplayPurge calls pawl_v1.replay_purge.
func ReplayPurge(ctx context.Context, db DB, olderThan time.Duration, limit int) (purged int, err error) {
	err = one(ctx, db, "replay.purge", "select p.purged from pawl_v1.replay_purge($1, $2) as p", []any{olderThan.Milliseconds(), limit}, &purged)
	return purged, err
}

// FencePurge calls pawl_v1.fence_purge.
func FencePurge(ctx context.Context, db DB, olderThan time.Duration, limit int) (purged int, err error) {
	err = one(ctx, db, "fence.purge", "select p.purged from pawl_v1.fence_purge($1, $2) as p", []any{olderThan.Milliseconds(), limit}, &purged)
	return purged, err
}

// PurgeCount calls pawl_v1.purge_count; a negative olderThan means the default of the table's purge.
func PurgeCount(ctx context.Context, db DB, table, consumer string, olderThan time.Duration) (due int64, err error) {
	o := olderThanOption(olderThan)
	set(o, "consumer", consumer)
	err = one(ctx, db, "purge.count", "select c.due from pawl_v1.purge_count($1, $2::jsonb) as c", []any{table, o.text()}, &due)
	return due, err
}

func olderThanOption(olderThan time.Duration) Options {
	o := Options{}
	if olderThan >= 0 {
		o["older_than_ms"] = olderThan.Milliseconds()
	}
	return o
}
