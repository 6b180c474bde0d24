package contract

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// OperateArgs are the arguments of job_retry, job_cancel and job_discard.
type OperateArgs struct {
	Actor, Reason string
	From          []string // nil: any status that the verb takes
	Fence         *int64   // nil: any
}

// OperateRow is their answer.
type OperateRow struct {
	Outcome string // "retried", "cancelled", "discarded"; "refused"; "absent"
	Status  string // what the job was; empty if absent
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

// JobRecall calls pawl_v1.job_recall and reports whether a worker was told.
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

// JobRow is one row of pawl_v1.jobs.
type JobRow struct {
	ID                                       int64
	Queue, Kind, Status                      string
	Priority, Attempts, MaxAttempts, Crashes int
	Fence                                    int64
	AvailableAt, CreatedAt                   time.Time
	Worker, LastError                        *string
	ArgsOctets                               int
	Lane, LastCode, MessageKey               *string
	ReadAt                                   time.Time // the database's clock
}

const jobColumns = `j.id, j.queue, j.kind, j.status, j.priority, j.attempts, j.max_attempts, j.crashes, j.fence,
       j.available_at, j.created_at, j.worker, j.last_error, j.args_octets, j.lane, j.last_code, j.message_key, clock_timestamp()`

func (r *JobRow) columns() []any {
	return []any{&r.ID, &r.Queue, &r.Kind, &r.Status, &r.Priority, &r.Attempts, &r.MaxAttempts, &r.Crashes, &r.Fence,
		&r.AvailableAt, &r.CreatedAt, &r.Worker, &r.LastError, &r.ArgsOctets, &r.Lane, &r.LastCode, &r.MessageKey, &r.ReadAt}
}

// JobListArgs select rows of pawl_v1.jobs; a zero field selects all.
type JobListArgs struct {
	Queue, Kind string
	Statuses    []string
	Error       string   // the last one holds it
	NotCodes    []string // the last one has none of them
	OlderThan   time.Duration
	After       int64
	Limit       int
}

// where is the condition, and its arguments. Only what is asked for stands in it, so that the planner sees through it to job_dead.
func (a JobListArgs) where() (condition string, args []any) {
	where, args := []string{"j.id > $1"}, []any{a.After}
	only := func(condition string, value any) {
		args = append(args, value)
		where = append(where, fmt.Sprintf(condition, len(args)))
	}
	if a.Queue != "" {
		only("j.queue = $%d", a.Queue)
	}
	if a.Kind != "" {
		only("j.kind = $%d", a.Kind)
	}
	if len(a.Statuses) > 0 {
		only("j.status = any ($%d)", a.Statuses)
	}
	if a.Error != "" {
		only("position($%d::text in j.last_error) > 0", a.Error)
	}
	if len(a.NotCodes) > 0 {
		only("coalesce(j.last_code, '') <> all ($%d)", a.NotCodes)
	}
	if a.OlderThan > 0 {
		only("j.created_at < clock_timestamp() - $%d * interval '1 millisecond'", a.OlderThan.Milliseconds())
	}
	return strings.Join(where, "\n   and "), args
}

// JobList reads pawl_v1.jobs in the order of the ids.
func JobList(ctx context.Context, db DB, a JobListArgs) ([]JobRow, error) {
	where, args := a.where()
	args = append(args, a.Limit)
	query := fmt.Sprintf("select %s\n  from pawl_v1.jobs as j\n where %s\n order by j.id\n limit $%d", jobColumns, where, len(args))
	return Look(ctx, db, "job.list", query, args, func(row pgx.CollectableRow) (r JobRow, err error) {
		err = row.Scan(r.columns()...)
		return r, err
	})
}

// JobCount counts what JobList would read without a limit, and says which id is the last.
func JobCount(ctx context.Context, db DB, a JobListArgs) (count int, last int64, err error) {
	where, args := a.where()
	err = lookOne(ctx, db, "job.count", "select count(*), coalesce(max(j.id), 0) from pawl_v1.jobs as j where "+where, args, &count, &last)
	return count, last, err
}

// JobIDs reads the ids of what JobList would read.
func JobIDs(ctx context.Context, db DB, a JobListArgs) ([]int64, error) {
	where, args := a.where()
	args = append(args, a.Limit)
	return Look(ctx, db, "job.list", fmt.Sprintf("select j.id from pawl_v1.jobs as j where %s order by j.id limit $%d", where, len(args)), args,
		pgx.RowTo[int64])
}

// JobShowRow is all there is to know of a job.
type JobShowRow struct {
	JobRow
	Args           []byte
	Headers        map[string]any
	LastErrors     []JobErrorRow
	WorkerID       *int64 // null: nobody, or a lease of the row's own
	SeenAt         *time.Time
	Presence       *bool
	LeaseExpiresAt *time.Time // of the worker, or of the row
}

// JobErrorRow is one entry of pawl.job.last_errors.
type JobErrorRow struct {
	At      time.Time `json:"at"`
	Attempt int       `json:"attempt"`
	Code    string    `json:"code"`
	Error   string    `json:"error"`
}

// JobShow reads one job with its holder. It returns no row if there is no such job.
func JobShow(ctx context.Context, db DB, id int64) ([]JobShowRow, error) {
	return Look(ctx, db, "job.show", `select `+jobColumns+`, s.args, s.headers, s.last_errors,
       w.id, w.seen_at, w.presence, coalesce(w.seen_at + w.lease, s.lease_expires_at)
  from pawl_v1.jobs as j
  join pawl.job as s on s.id = j.id
  left join pawl.worker as w on w.id = s.claimed_by
 where j.id = $1`, []any{id}, func(row pgx.CollectableRow) (r JobShowRow, err error) {
		err = row.Scan(append(r.columns(), &r.Args, jsonInto{&r.Headers}, jsonInto{&r.LastErrors},
			&r.WorkerID, &r.SeenAt, &r.Presence, &r.LeaseExpiresAt)...)
		return r, err
	})
}

// AuditRow is one row of pawl.audit.
type AuditRow struct {
	ID                  int64
	At                  time.Time
	Actor, Verb, Reason string
	Before, After       json.RawMessage // After null: deleted
}

// AuditOf reads the newest records of what pawl_v1._audit_target names, oldest first.
func AuditOf(ctx context.Context, db DB, limit int, kind string, names ...string) ([]AuditRow, error) {
	return Look(ctx, db, "audit.list", `select n.id, n.at, n.actor, n.verb, n.reason, n.before, n.after
  from (
    select a.id, a.at, a.actor, a.verb, a.reason, a.before, a.after
      from pawl.audit as a
     where a.target = pawl_v1._audit_target($1, variadic $3::text[])
     order by a.id desc
     limit $2
  ) as n
 order by n.id`, []any{kind, limit, names}, func(row pgx.CollectableRow) (r AuditRow, err error) {
		err = row.Scan(&r.ID, &r.At, &r.Actor, &r.Verb, &r.Reason, &r.Before, &r.After)
		return r, err
	})
}

// StaleRow is one row of stale_classify.
type StaleRow struct {
	Kind, Scope, Key string
	Class            string
	Reason, Advice   string
	Since            time.Time
	Detail           json.RawMessage
}

// StaleClassify calls pawl_v1.stale_classify. An empty kind means all.
func StaleClassify(ctx context.Context, db DB, kind string) ([]StaleRow, error) {
	return many(ctx, db, "stale.classify", `select s.kind, s.scope, s.key, s.class, s.reason, s.advice, s.since, s.detail
  from pawl_v1.stale_classify($1) as s
 order by s.kind, s.since`, []any{given(kind)}, func(row pgx.CollectableRow) (r StaleRow, err error) {
		err = row.Scan(&r.Kind, &r.Scope, &r.Key, &r.Class, &r.Reason, &r.Advice, &r.Since, &r.Detail)
		return r, err
	})
}
