package contract

import (
	"context"
	"time"
)

// JobOwnRow is the result of job_cancel_own and job_reschedule.
type JobOwnRow struct {
	Outcome string // "cancelled", "rescheduled"; "refused"; "absent"
	Status  string // before the call; empty if absent
	Hint    string // if nothing changed
	Queue   string // of a rescheduled job
	ReadOn  string // see [watched.ReadOn]
}

// JobCancelOwn calls pawl_v1.job_cancel_own.
func JobCancelOwn(ctx context.Context, db DB, id int64) (JobOwnRow, error) {
	return jobOwn(ctx, db, "job.cancel", "pawl_v1.job_cancel_own($1)", id)
}

// JobReschedule calls pawl_v1.job_reschedule.
func JobReschedule(ctx context.Context, db DB, id int64, startIn time.Duration) (JobOwnRow, error) {
	return jobOwn(ctx, db, "job.reschedule", "pawl_v1.job_reschedule($1, $2)", id, startIn.Milliseconds())
}

func jobOwn(ctx context.Context, db DB, op, call string, arguments ...any) (r JobOwnRow, err error) {
	err = one(ctx, db, op, `select o.outcome, coalesce(o.detail operator(pg_catalog.->>) 'status', ''), coalesce(o.detail operator(pg_catalog.->>) 'hint', ''),
       coalesce(o.detail operator(pg_catalog.->>) 'queue', ''), coalesce(o.detail operator(pg_catalog.->>) 'unreplicated', '')
  from `+call+` as o`, arguments, &r.Outcome, &r.Status, &r.Hint, &r.Queue, &r.ReadOn)
	return r, err
}
