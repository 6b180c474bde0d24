package contract

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"
)

// OperateArgs are the arguments of job_retry, job_cancel and job_discard.
type OperateArgs struct {
	Actor, Reason string
	From          []string // nil: any status that the verb accepts
	Fence         *int64   // nil: any
}

// OperateRow is the result of these functions.
type OperateRow struct {
	Outcome string // "retried", "cancelled", "discarded"; "refused"; "absent"
	Status  string // before the call; empty if absent
	Hint    string // if nothing changed
}

// JobRetry calls pawl_v1.job_retry.
func JobRetry(ctx context.Context, db DB, id int64, a OperateArgs) (OperateRow, error) {
	return operate(ctx, db, "job.retry", "pawl_v1.job_retry", id, a)
}

// JobCancel calls pawl_v1.job_cancel.
func JobCancel(ctx context.Context, db DB, id int64, a OperateArgs) (OperateRow, error) {
	return operate(ctx, db, "job.cancel", "pawl_v1.job_cancel", id, a)
}

// JobRecall calls pawl_v1.job_recall and reports whether a worker was notified.
func JobRecall(ctx context.Context, db DB, id int64) (recalled bool, err error) {
	var outcome string
	err = one(ctx, db, "job.recall", "select r.outcome from pawl_v1.job_recall($1) as r", []any{id}, &outcome)
	return outcome == "recalled", err
}

// JobDiscard calls pawl_v1.job_discard.
func JobDiscard(ctx context.Context, db DB, id int64, a OperateArgs) (OperateRow, error) {
	return operate(ctx, db, "job.discard", "pawl_v1.job_discard", id, a)
}

// JobRetryMany calls pawl_v1.job_retry for each of some jobs, in one transaction.
func JobRetryMany(ctx context.Context, db DB, ids []int64, a OperateArgs) ([]OperateRow, error) {
	return operateMany(ctx, db, "job.retry", "pawl_v1.job_retry", ids, a)
}

// JobDiscardMany calls pawl_v1.job_discard for each of some jobs, in one transaction.
func JobDiscardMany(ctx context.Context, db DB, ids []int64, a OperateArgs) ([]OperateRow, error) {
	return operateMany(ctx, db, "job.discard", "pawl_v1.job_discard", ids, a)
}

func operateMany(ctx context.Context, db DB, op, function string, ids []int64, a OperateArgs) ([]OperateRow, error) {
	return many(ctx, db, op, `select o.outcome, coalesce(o.detail operator(pg_catalog.->>) 'status', ''), coalesce(o.detail operator(pg_catalog.->>) 'hint', '')
  from pg_catalog.unnest($1::bigint[]) as i (id)
 cross join lateral `+function+`(i.id, $2, $3, $4::pg_catalog.jsonb) as o`, []any{ids, a.Actor, a.Reason, a.options().text()},
		func(row pgx.CollectableRow) (r OperateRow, err error) {
			err = row.Scan(&r.Outcome, &r.Status, &r.Hint)
			return r, err
		})
}

func (a OperateArgs) options() Options {
	o := Options{}
	if a.From != nil {
		o["from"] = a.From
	}
	if a.Fence != nil {
		o["fence"] = *a.Fence
	}
	return o
}

func operate(ctx context.Context, db DB, op, function string, id int64, a OperateArgs) (r OperateRow, err error) {
	err = one(ctx, db, op,
		"select o.outcome, coalesce(o.detail operator(pg_catalog.->>) 'status', ''), coalesce(o.detail operator(pg_catalog.->>) 'hint', '') from "+
			function+"($1, $2, $3, $4::pg_catalog.jsonb) as o",
		[]any{id, a.Actor, a.Reason, a.options().text()}, &r.Outcome, &r.Status, &r.Hint)
	return r, err
}

// StaleRow is one row of stale_classify.
type StaleRow struct {
	Kind, Scope, Key string
	Class            string
	Reason, Advice   string
	Since            time.Time
	Detail           json.RawMessage
}

// StaleClassify calls pawl_v1.stale_classify. An empty kind matches all.
func StaleClassify(ctx context.Context, db DB, kind string) ([]StaleRow, error) {
	return many(ctx, db, "stale.classify", `select s.kind, s.scope, s.key, s.class, s.reason, s.advice, s.since, s.detail
  from pawl_v1.stale_classify($1) as s
 order by s.kind, s.since`, []any{given(kind)}, func(row pgx.CollectableRow) (r StaleRow, err error) {
		err = row.Scan(&r.Kind, &r.Scope, &r.Key, &r.Class, &r.Reason, &r.Advice, &r.Since, &r.Detail)
		return r, err
	})
}
