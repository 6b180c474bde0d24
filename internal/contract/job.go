package contract

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
)

// JobEnqueueArgs are the arguments of job_enqueue.
type JobEnqueueArgs struct {
	Queue, Kind string
	Args        []byte
	Key         string
	Fingerprint pawl.Fingerprint
	KeyTTL      time.Duration
	Priority    int
	StartIn     time.Duration
	MaxAttempts int
	Headers     map[string]any
}

// JobEnqueueRow is the answer of job_enqueue.
type JobEnqueueRow struct {
	Outcome string // "enqueued" or "duplicate"
	JobID   int64
}

// JobEnqueue calls pawl_v1.job_enqueue.
func JobEnqueue(ctx context.Context, db DB, a JobEnqueueArgs) (JobEnqueueRow, error) {
	o := Options{}
	set(o, "key", a.Key)
	if !a.Fingerprint.IsZero() {
		o["hash"] = a.Fingerprint.String()
	}
	set(o, "key_ttl_ms", a.KeyTTL.Milliseconds())
	set(o, "priority", a.Priority)
	set(o, "retry_in_ms", a.StartIn.Milliseconds())
	set(o, "max_attempts", a.MaxAttempts)
	if a.Headers != nil {
		o["headers"] = a.Headers
	}
	var r JobEnqueueRow
	err := one(ctx, db, "job.enqueue", "select e.outcome, e.job_id from pawl_v1.job_enqueue($1, $2, $3, $4::jsonb) as e",
		[]any{a.Queue, a.Kind, octets(a.Args), o.text()}, &r.Outcome, &r.JobID)
	return r, err
}

// JobClaimRow is one job of job_claim's answer.
type JobClaimRow struct {
	ID, Fence                      int64
	Kind                           string
	Args                           []byte
	Headers                        map[string]any
	Attempts, MaxAttempts, Crashes int
	CreatedAt                      time.Time
}

// JobClaim calls pawl_v1.job_claim. The rows come in no particular order.
func JobClaim(ctx context.Context, db DB, queue string, worker int64, limit int) ([]JobClaimRow, error) {
	rows, err := db.Query(ctx, `select c.id, c.fence, c.kind, c.args, c.headers, c.attempts, c.max_attempts, c.crashes, c.created_at
  from pawl_v1.job_claim($1, $2, $3) as c`, queue, worker, limit)
	if err != nil {
		return nil, pawl.Wrap("job.claim", err)
	}
	claimed, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (JobClaimRow, error) {
		var j JobClaimRow
		err := row.Scan(&j.ID, &j.Fence, &j.Kind, &j.Args, &j.Headers, &j.Attempts, &j.MaxAttempts, &j.Crashes, &j.CreatedAt)
		return j, err
	})
	return claimed, pawl.Wrap("job.claim", err)
}

// JobHold calls pawl_v1.job_hold.
func JobHold(ctx context.Context, db DB, id, fence int64) error {
	var outcome string
	return one(ctx, db, "job.hold", "select h.outcome from pawl_v1.job_hold($1, $2) as h", []any{id, fence}, &outcome)
}

// JobFinish calls pawl_v1.job_finish.
func JobFinish(ctx context.Context, db DB, id, fence int64) error {
	var outcome string
	return one(ctx, db, "job.finish", "select f.outcome from pawl_v1.job_finish($1, $2) as f", []any{id, fence}, &outcome)
}

// JobFailRow is the answer of job_fail.
type JobFailRow struct {
	Outcome     string // "retry" or "dead_letter"
	AvailableAt time.Time
	Attempts    int
}

// JobFail calls pawl_v1.job_fail.
func JobFail(ctx context.Context, db DB, id, fence int64, failure Failure, retryIn time.Duration, final bool) (JobFailRow, error) {
	o := Options{"retry_in_ms": retryIn.Milliseconds()}
	set(o, "final", final)
	what := Options{"error": failure.Error}
	set(what, "code", failure.Code)
	var r JobFailRow
	err := one(ctx, db, "job.fail",
		"select f.outcome, f.available_at, f.attempts from pawl_v1.job_fail($1, $2, $3::jsonb, $4::jsonb) as f",
		[]any{id, fence, what.text(), o.text()},
		&r.Outcome, &r.AvailableAt, &r.Attempts)
	return r, err
}

// JobRelease calls pawl_v1.job_release and reports whether the job was still ours.
func JobRelease(ctx context.Context, db DB, id, fence int64) (released bool, err error) {
	var outcome string
	err = one(ctx, db, "job.release", "select r.outcome from pawl_v1.job_release($1, $2) as r", []any{id, fence}, &outcome)
	return outcome == "released", err
}

// JobSweepRow is the answer of job_sweep.
type JobSweepRow struct {
	Outcome                         string // "swept" or "busy"
	Requeued, DeadLettered, Workers int
}

// JobSweep calls pawl_v1.job_sweep.
func JobSweep(ctx context.Context, db DB, kinds []string, maxCrashes int) (JobSweepRow, error) {
	o := Options{}
	set(o, "max_crashes", maxCrashes)
	var r JobSweepRow
	err := one(ctx, db, "job.sweep",
		"select s.outcome, s.requeued, s.dead_lettered, s.workers from pawl_v1.job_sweep($1, $2::jsonb) as s",
		[]any{kinds, o.text()}, &r.Outcome, &r.Requeued, &r.DeadLettered, &r.Workers)
	return r, err
}

// WorkerRegister calls pawl_v1.worker_register.
func WorkerRegister(ctx context.Context, db DB, name string, lease time.Duration) (int64, error) {
	var id int64
	err := one(ctx, db, "worker.register", "select r.worker_id from pawl_v1.worker_register($1, $2::interval) as r",
		[]any{name, lease}, &id)
	return id, err
}

// WorkerHeartbeat calls pawl_v1.worker_heartbeat and reports whether the worker still holds its lease.
func WorkerHeartbeat(ctx context.Context, db DB, worker int64) (alive bool, err error) {
	var outcome string
	err = one(ctx, db, "worker.heartbeat", "select h.outcome from pawl_v1.worker_heartbeat($1) as h", []any{worker}, &outcome)
	return outcome == "alive", err
}

// WorkerLeave calls pawl_v1.worker_leave and returns how many jobs it gave back.
func WorkerLeave(ctx context.Context, db DB, worker int64) (released int, err error) {
	err = one(ctx, db, "worker.leave", "select l.released from pawl_v1.worker_leave($1) as l", []any{worker}, &released)
	return released, err
}
