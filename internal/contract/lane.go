package contract

import (
	"context"
)

// Lanes is the part of a call's detail about the lanes whose current job it ended.
type Lanes struct {
	Promoted int `json:"promoted"` // jobs that can be claimed after COMMIT
	// lanes locked by other transactions: call LanePromote for each after COMMIT
	Skipped []int64 `json:"skipped"`
}

// Scan implements sql.Scanner.
func (l *Lanes) Scan(detail any) error { return scanDetail(detail, l) }

// LanePromote calls pawl_v1.lane_promote and reports whether a job can be claimed now.
func LanePromote(ctx context.Context, db DB, lane int64) (promoted bool, err error) {
	var outcome string
	err = one(ctx, db, "lane.promote", "select p.outcome from pawl_v1.lane_promote($1) as p", []any{lane}, &outcome)
	return outcome == "promoted", err
}

// LaneSweepRow is the result of lane_sweep and lane_purge.
type LaneSweepRow struct {
	Count int    // promoted or purged
	Next  *int64 // argument after of the next call; null after the last
}

// LaneSweep calls pawl_v1.lane_sweep.
func LaneSweep(ctx context.Context, db DB, after int64, limit int) (r LaneSweepRow, err error) {
	o := Options{}
	set(o, "after", after)
	err = one(ctx, db, "lane.sweep", "select s.promoted, (s.detail operator(pg_catalog.->>) 'next')::bigint from pawl_v1.lane_sweep($1, $2::pg_catalog.jsonb) as s",
		[]any{limit, o.text()}, &r.Count, &r.Next)
	return r, err
}

// LanePurge calls pawl_v1.lane_purge.
func LanePurge(ctx context.Context, db DB, after int64, limit int) (r LaneSweepRow, err error) {
	o := Options{}
	set(o, "after", after)
	err = one(ctx, db, "lane.purge", "select p.purged, (p.detail operator(pg_catalog.->>) 'next')::bigint from pawl_v1.lane_purge($1, $2::pg_catalog.jsonb) as p",
		[]any{limit, o.text()}, &r.Count, &r.Next)
	return r, err
}

// LaneOperateRow is the result of lane_unblock and lane_policy.
type LaneOperateRow struct {
	Outcome string // "unblocked", "changed"; "refused", "idle"; "absent"
	Job     *int64 // the lane's head
	Status  string // of that job, if refused
	Policy  string // the previous policy, if changed
	Hint    string // if nothing changed
	Lanes   Lanes
}

const laneOperateColumns = `select o.outcome, (o.detail operator(pg_catalog.->>) 'job')::bigint, coalesce(o.detail operator(pg_catalog.->>) 'status', ''),
       coalesce(o.detail operator(pg_catalog.->>) 'policy', ''), coalesce(o.detail operator(pg_catalog.->>) 'hint', ''), o.detail
  from `

func (r *LaneOperateRow) columns() []any {
	return []any{&r.Outcome, &r.Job, &r.Status, &r.Policy, &r.Hint, &r.Lanes}
}

// LaneUnblock calls pawl_v1.lane_unblock. Job 0 means any job that blocks the lane.
func LaneUnblock(ctx context.Context, db DB, queue, lane, actor, reason string, job int64) (r LaneOperateRow, err error) {
	o := Options{}
	set(o, "job", job)
	err = one(ctx, db, "lane.unblock", laneOperateColumns+"pawl_v1.lane_unblock($1, $2, $3, $4, $5::pg_catalog.jsonb) as o",
		[]any{queue, lane, actor, reason, o.text()}, r.columns()...)
	return r, err
}

// LanePolicy calls pawl_v1.lane_policy.
func LanePolicy(ctx context.Context, db DB, queue, lane, policy, actor, reason string) (r LaneOperateRow, err error) {
	err = one(ctx, db, "lane.policy", laneOperateColumns+"pawl_v1.lane_policy($1, $2, $3, $4, $5) as o",
		[]any{queue, lane, policy, actor, reason}, r.columns()...)
	return r, err
}
