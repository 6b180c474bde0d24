package contract

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
)

// JobSweepRow is the result of job_sweep.
type JobSweepRow struct {
	Outcome                         string // "swept" or "busy"
	Requeued, DeadLettered, Workers int
	Lanes                           Lanes
}

// JobSweep calls pawl_v1.job_sweep.
func JobSweep(ctx context.Context, db DB, kinds []string, maxCrashes int) (JobSweepRow, error) {
	o := Options{}
	set(o, "max_crashes", maxCrashes)
	var r JobSweepRow
	err := one(ctx, db, "job.sweep",
		"select s.outcome, s.requeued, s.dead_lettered, s.workers, s.detail from pawl_v1.job_sweep($1, $2::pg_catalog.jsonb) as s",
		[]any{kinds, o.text()}, &r.Outcome, &r.Requeued, &r.DeadLettered, &r.Workers, &r.Lanes)
	return r, err
}

// WorkerRegister calls pawl_v1.worker_register. If the wait for a synchronous standby was
// cancelled, the worker still counts as registered. If a failover loses its row, the next heartbeat
// reports that.
func WorkerRegister(ctx context.Context, db DB, name string, lease time.Duration, queues []string) (int64, error) {
	o := Options{}
	if len(queues) > 0 {
		o["queues"] = queues
	}
	var id int64
	err := one(ctx, db, "worker.register", "select r.worker_id from pawl_v1.worker_register($1, $2::interval, $3::pg_catalog.jsonb) as r",
		[]any{name, lease, o.text()}, &id)
	if id != 0 && pawl.MayHaveHappened(err) {
		return id, nil
	}
	return id, err
}

// WorkerIsolate calls pawl_v1.worker_isolate and returns its outcome: "alone", "company" or "lost".
// With alone false, it removes the mark of this attempt only.
func WorkerIsolate(ctx context.Context, db DB, worker, job, fence int64, alone bool) (outcome string, err error) {
	err = one(ctx, db, "worker.isolate", "select i.outcome from pawl_v1.worker_isolate($1, $2, $3, $4) as i", []any{worker, job, fence, alone}, &outcome)
	return outcome, err
}

// QueueDeath calls pawl_v1.queue_death. It returns when a process that worked on the queue last
// died, or nil.
func QueueDeath(ctx context.Context, db DB, queue string) (diedAt *time.Time, err error) {
	err = one(ctx, db, "queue.death", "select d.died_at from pawl_v1.queue_death($1) as d", []any{queue}, &diedAt)
	return diedAt, err
}

// WorkerHeartbeatRow is the result of worker_heartbeat.
type WorkerHeartbeatRow struct {
	Alive    bool
	Recalled []int64 // jobs of the worker that were cancelled since the last heartbeat
	Recalls  []int64 // ids of these cancellations; the next heartbeat confirms them
	Hidden   bool    // row level security may hide jobs from the worker
}

// WorkerReport is what a worker reports about itself, for diagnosis.
type WorkerReport struct {
	Queues   []string                 `json:"queues"`
	DrainMS  int64                    `json:"drain_ms"`
	Handlers map[string]HandlerReport `json:"handlers"` // by kind
	// a pooler switches sessions under its presence connection, so it has no presence
	Pooled bool `json:"pooled,omitempty"`
	// its pool notices commits that stopped waiting for a standby
	Watched bool `json:"watched"`
	// "on"; "off": Presence.Off; "none": no presence connection; empty: not known yet
	Wakeups string `json:"wakeups,omitempty"`
	// times it found jobs in an empty queue after a notification
	Woken  int64 `json:"woken"`
	Polled int64 `json:"polled"` // times it found them by polling
}

// HandlerReport is what a worker reports about one of its handlers.
type HandlerReport struct {
	TimeoutMS int64 `json:"timeout_ms"`
	Runs      int64 `json:"runs"`   // since the worker started
	P99MS     int64 `json:"p99_ms"` // of the latest runs
}

// WorkerHeartbeat calls pawl_v1.worker_heartbeat in a transaction of its own that does not wait for
// the disk. told are the Recalls of the previous result. A nil report keeps the previous one.
func WorkerHeartbeat(ctx context.Context, db Batcher, worker int64, presence bool, told []int64, report *WorkerReport) (WorkerHeartbeatRow, error) {
	o := Options{"presence": presence, "told": append([]int64{}, told...)} // a non-nil array
	if report != nil {
		o["report"] = report
	}
	var batch pgx.Batch
	// local to the batch's transaction
	batch.Queue("select pg_catalog.set_config('synchronous_commit', 'off', true)")
	batch.Queue("select h.outcome, h.recalled, h.detail from pawl_v1.worker_heartbeat($1, $2::pg_catalog.jsonb) as h", worker, o.text())
	results := db.SendBatch(ctx, &batch)
	_, err := results.Exec()
	var r WorkerHeartbeatRow
	var outcome string
	var detail struct {
		Recalls []int64
		Hidden  bool
	}
	if err == nil {
		err = results.QueryRow().Scan(&outcome, &r.Recalled, &detail)
	}
	r.Recalls, r.Hidden = detail.Recalls, detail.Hidden
	if e := results.Close(); err == nil {
		err = e
	}
	leaveStandby(db, err)
	r.Alive = outcome == "alive"
	return r, pawl.Wrap("worker.heartbeat", err)
}

// WorkerAttend calls pawl_v1.worker_attend and reports whether the session has the presence lock.
func WorkerAttend(ctx context.Context, db DB, worker int64) (present bool, err error) {
	var outcome string
	err = one(ctx, db, "worker.attend", "select a.outcome from pawl_v1.worker_attend($1) as a", []any{worker}, &outcome)
	return outcome == "present", err
}

// WorkerLeave calls pawl_v1.worker_leave and returns how many jobs it released. The next sweep
// counts a crash of each abandoned job.
func WorkerLeave(ctx context.Context, db DB, worker int64, abandoned []int64) (released int, err error) {
	o := Options{}
	if len(abandoned) > 0 {
		o["abandoned"] = abandoned
	}
	err = one(ctx, db, "worker.leave", "select l.released from pawl_v1.worker_leave($1, $2::pg_catalog.jsonb) as l", []any{worker, o.text()}, &released)
	return released, err
}

// WorkerAsleepRow is one row of worker_asleep.
type WorkerAsleepRow struct {
	Outcome string // "asleep" or "taken"
	Queue   string
	Signal  string // notification payload that stands for the queue
}

// WorkerAsleep calls pawl_v1.worker_asleep.
func WorkerAsleep(ctx context.Context, db DB, queues []string) ([]WorkerAsleepRow, error) {
	return many(ctx, db, "worker.asleep", "select a.outcome, a.queue, a.signal from pawl_v1.worker_asleep($1) as a", []any{queues},
		pgx.RowToStructByPos[WorkerAsleepRow])
}

// WorkerAwake calls pawl_v1.worker_awake.
func WorkerAwake(ctx context.Context, db DB, queues []string) error {
	_, err := many(ctx, db, "worker.awake", "select a.outcome from pawl_v1.worker_awake($1) as a", []any{queues}, pgx.RowTo[string])
	return err
}
