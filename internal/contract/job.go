package contract

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
)

// JobEnqueueArgs are the arguments of job_enqueue.
type JobEnqueueArgs struct {
	Queue, Kind string
	Payload     []byte
	Key         string
	Fingerprint pawl.Fingerprint
	Retention   time.Duration
	Priority    int
	StartIn     time.Duration
	MaxAttempts int
	Headers     map[string]any
	Lane        string
	LanePolicy  string // of a new lane
}

// JobEnqueueRow is the result of job_enqueue.
type JobEnqueueRow struct {
	Outcome string // "enqueued" or "duplicate"
	JobID   int64
	ReadOn  string // see [watched.ReadOn]
}

// JobEnqueue calls pawl_v1.job_enqueue.
func JobEnqueue(ctx context.Context, db DB, a JobEnqueueArgs) (JobEnqueueRow, error) {
	o := Options{}
	set(o, "key", a.Key)
	if !a.Fingerprint.IsZero() {
		o["hash"] = a.Fingerprint.String()
	}
	set(o, "retention_ms", a.Retention.Milliseconds())
	set(o, "priority", a.Priority)
	set(o, "retry_in_ms", a.StartIn.Milliseconds())
	set(o, "max_attempts", a.MaxAttempts)
	set(o, "lane", a.Lane)
	set(o, "lane_policy", a.LanePolicy)
	if a.Headers != nil {
		o["headers"] = a.Headers
	}
	var r JobEnqueueRow
	err := one(ctx, db, "job.enqueue", "select e.outcome, e.job_id, coalesce(e.detail operator(pg_catalog.->>) 'unreplicated', '') from pawl_v1.job_enqueue($1, $2, $3, $4::pg_catalog.jsonb) as e",
		[]any{a.Queue, a.Kind, octets(a.Payload), o.exact()}, &r.Outcome, &r.JobID, &r.ReadOn)
	return r, err
}

// JobEnqueueMany calls pawl_v1.job_enqueue_many. retention applies to all keys, and lanePolicy to
// all new lanes.
func JobEnqueueMany(ctx context.Context, db DB, jobs []JobEnqueueArgs, retention time.Duration, lanePolicy string) ([]JobEnqueueRow, error) {
	o := Options{}
	set(o, "retention_ms", retention.Milliseconds())
	set(o, "lane_policy", lanePolicy)
	if slices.ContainsFunc(jobs, func(j JobEnqueueArgs) bool { return j.Lane != "" }) {
		o["lanes"] = column(jobs, func(j JobEnqueueArgs) *string { return given(j.Lane) })
	}
	// One row with arrays: reading a thousand rows costs as much as writing the jobs.
	var (
		ids, odd numbers // odd: positions of the jobs that were not enqueued
		others   words   // their outcomes
		readOn   string
	)
	err := one(ctx, db, "job.enqueue", `select pg_catalog.array_agg(e.job_id order by e.n),
       pg_catalog.array_agg(e.n::pg_catalog.int8 order by e.n) filter (where e.outcome operator(pg_catalog.<>) 'enqueued'),
       pg_catalog.array_agg(e.outcome order by e.n) filter (where e.outcome operator(pg_catalog.<>) 'enqueued'),
       coalesce(pg_catalog.max(e.detail operator(pg_catalog.->>) 'unreplicated'), '')
  from pawl_v1.job_enqueue_many($1, $2, $3, $4, $5, $6, $7, $8, $9::pg_catalog.jsonb[], $10::pg_catalog.jsonb) as e`,
		[]any{
			column(jobs, func(j JobEnqueueArgs) string { return j.Queue }),
			column(jobs, func(j JobEnqueueArgs) string { return j.Kind }),
			column(jobs, func(j JobEnqueueArgs) []byte { return octets(j.Payload) }),
			sparse(jobs, func(j JobEnqueueArgs) *string { return given(j.Key) }),
			sparse(jobs, JobEnqueueArgs.hash),
			sparse(jobs, func(j JobEnqueueArgs) *int32 { return given(int32(j.Priority)) }),
			sparse(jobs, func(j JobEnqueueArgs) *int64 { return given(j.StartIn.Milliseconds()) }),
			sparse(jobs, func(j JobEnqueueArgs) *int32 { return given(int32(j.MaxAttempts)) }),
			sparse(jobs, JobEnqueueArgs.headers),
			o.exact(),
		}, &ids, &odd, &others, &readOn)
	if err != nil {
		return nil, err
	}
	rows := make([]JobEnqueueRow, len(ids.FlatArray))
	for i, id := range ids.FlatArray {
		rows[i] = JobEnqueueRow{Outcome: "enqueued", JobID: id, ReadOn: readOn}
	}
	for i, n := range odd.FlatArray {
		rows[n-1].Outcome = others.FlatArray[i]
	}
	return rows, nil
}

// hash returns nil if there is no fingerprint.
func (a JobEnqueueArgs) hash() *[]byte {
	if a.Fingerprint.IsZero() {
		return nil
	}
	octets := a.Fingerprint[:]
	return &octets
}

// headers returns nil if there are none.
func (a JobEnqueueArgs) headers() *string {
	if a.Headers == nil {
		return nil
	}
	return given(Options(a.Headers).exact())
}

// JobKick calls pawl_v1.job_kick.
func JobKick(ctx context.Context, db DB, queues []string) error {
	return one(ctx, db, "job.kick", "select k.outcome from pawl_v1.job_kick($1) as k", []any{queues}, new(string))
}

// JobClaimRow is one claimed job.
type JobClaimRow struct {
	ID, Fence                      int64
	Queue, Kind                    string
	Payload                        []byte
	Headers                        map[string]any
	Attempts, MaxAttempts, Crashes int
	Priority                       int
	CreatedAt, AvailableAt         time.Time
	LanePosition                   LanePosition
}

// A LanePosition is the position of a job in its lane, from the detail of a claim. It is zero
// outside of lanes.
type LanePosition struct {
	Lane     string `json:"lane"`
	Position int64  `json:"position"`
}

// Scan implements sql.Scanner.
func (p *LanePosition) Scan(detail any) error { return scanDetail(detail, p) }

// Marks are the times, by priority, from which a claim searches. A zero time means from the
// beginning.
type Marks [4]time.Time

func (m Marks) texts() (texts [4]*string) {
	for i, at := range m {
		if !at.IsZero() {
			texts[i] = given(at.Format(time.RFC3339Nano))
		}
	}
	return texts
}

// JobClaim calls pawl_v1.job_claim for a registered worker. Nil kinds means all; with crashed
// false, jobs with crashes are left out. The rows are unordered.
func JobClaim(ctx context.Context, db DB, queue string, worker int64, limit int, kinds []string, crashed bool, since Marks) ([]JobClaimRow, error) {
	return collected(ctx, db, "job.claim", "select "+claimColumns+" from pawl_v1.job_claim($1, $2, $3, $4::pg_catalog.jsonb) as c",
		[]any{queue, worker, limit, claimOptions(kinds, crashed, since)}, func(rows pgx.Rows) ([]JobClaimRow, error) { return readClaims(rows, queue, kinds) })
}

func claimOptions(kinds []string, crashed bool, since Marks) string {
	o := Options{}
	if !crashed {
		o["crashed"] = false
	}
	if kinds != nil {
		o["kinds"] = kinds
	}
	if since != (Marks{}) {
		o["since"] = since.texts()
	}
	return o.text()
}

// JobExchangeRow is the result of job_exchange.
type JobExchangeRow struct {
	Finished  int
	Failed    []JobEndRow // "stale" or "locked"
	Lanes     Lanes       // of the finished jobs
	LeaseLost bool
	Jobs      []JobClaimRow
}

// JobExchange calls pawl_v1.job_exchange, which finishes some jobs and claims others.
func JobExchange(ctx context.Context, db DB, ends []Holding, queue string, worker int64, limit int, kinds []string, crashed bool, since Marks) (JobExchangeRow, error) {
	args := append(identities(ends), queue, worker, limit, claimOptions(kinds, crashed, since))
	rows, err := collected(ctx, db, "job.exchange", "select c.outcome, "+claimColumns+" from pawl_v1.job_exchange($1, $2, $3, $4, $5, $6::pg_catalog.jsonb) as c",
		args, func(rows pgx.Rows) ([]JobExchangeRow, error) {
			row, err := readExchange(rows, queue, kinds)
			return []JobExchangeRow{row}, err
		})
	if err != nil {
		return JobExchangeRow{}, err
	}
	return rows[0], nil
}

// JobClaimIDRow is the result of job_claim_id.
type JobClaimIDRow struct {
	Outcome     string      // "claimed", "not_due", "busy", "waiting", "ended" or "absent"
	Job         JobClaimRow // if claimed
	AvailableAt time.Time   // if not_due
	ReadOn      string      // see [watched.ReadOn]
}

// JobClaimID calls pawl_v1.job_claim_id for a registered worker.
func JobClaimID(ctx context.Context, db DB, id, worker int64) (JobClaimIDRow, error) {
	var (
		r                              JobClaimIDRow
		fence                          *int64
		queue, kind                    *string
		attempts, maxAttempts, crashes *int
		createdAt, availableAt         *time.Time
	)
	err := one(ctx, db, "job.claim_id", `select c.outcome, c.fence, c.queue, c.kind, c.payload, c.headers, c.attempts, c.max_attempts,
       c.crashes, c.created_at, c.available_at, c.detail, coalesce(c.detail operator(pg_catalog.->>) 'unreplicated', '')
  from pawl_v1.job_claim_id($1, $2) as c`, []any{id, worker},
		&r.Outcome, &fence, &queue, &kind, &r.Job.Payload, &r.Job.Headers, &attempts, &maxAttempts, &crashes, &createdAt, &availableAt,
		&r.Job.LanePosition, &r.ReadOn)
	if availableAt != nil {
		r.AvailableAt = *availableAt
	}
	if err == nil && r.Outcome == "claimed" {
		r.Job.ID, r.Job.Fence, r.Job.Queue, r.Job.Kind = id, *fence, *queue, *kind
		r.Job.Attempts, r.Job.MaxAttempts, r.Job.Crashes, r.Job.CreatedAt = *attempts, *maxAttempts, *crashes, *createdAt
	}
	return r, err
}

// JobEndRow is the result of job_hold_many and job_finish_many for one job.
type JobEndRow struct {
	ID      int64
	Outcome string // "held" or "finished"; "stale"; "locked"
	Lanes   Lanes  // of all finished jobs, in the first row
}

// Statements that are sent alone and as steps of a transaction.
const (
	holdSQL       = "select h.outcome from pawl_v1.job_hold($1, $2) as h"
	holdManySQL   = "select h.id, h.outcome, h.detail from pawl_v1.job_hold_many($1, $2) as h"
	finishSQL     = "select f.outcome, f.detail from pawl_v1.job_finish($1, $2) as f"
	openSQL       = "select o.outcome, o.xact, o.lane from pawl_v1.job_open($1, $2, $3) as o"
	closeSQL      = "select c.outcome, c.detail from pawl_v1.job_close($1, $2, $3, $4, $5) as c"
	finishManySQL = "select f.id, f.outcome, f.detail from pawl_v1.job_finish_many($1, $2, $3::pg_catalog.jsonb) as f"
)

// JobHold calls pawl_v1.job_hold.
func JobHold(ctx context.Context, db DB, id, fence int64) error {
	return one(ctx, db, "job.hold", holdSQL, []any{id, fence}, new(string))
}

// JobOpenRow is the result of job_open.
type JobOpenRow struct {
	Outcome string // "ended" or "kept"
	Xact    string
	Lane    *int64
}

// JobOpenStep calls pawl_v1.job_open.
func JobOpenStep(id, fence int64, idle time.Duration, into *JobOpenRow) Step {
	ms := int32(min(idle.Milliseconds(), math.MaxInt32))
	return step("job.open", openSQL, []any{id, fence, ms}, &into.Outcome, &into.Xact, &into.Lane)
}

// JobCloseStep calls pawl_v1.job_close with the result of job_open.
func JobCloseStep(id, fence int64, opened *JobOpenRow, into *Lanes) Step {
	return step("job.close", closeSQL, []any{id, fence, opened.Outcome, opened.Xact, opened.Lane}, new(string), into)
}

// A Holding is a job and the fence of the attempt that holds it.
type Holding struct{ ID, Fence int64 }

// identities returns the first two arguments of a function that takes several jobs.
func identities(jobs []Holding) []any {
	return []any{column(jobs, func(h Holding) int64 { return h.ID }), column(jobs, func(h Holding) int64 { return h.Fence })}
}

// JobHoldManyStep calls pawl_v1.job_hold_many.
func JobHoldManyStep(jobs []Holding, into func([]JobEndRow)) Step {
	return steps("job.hold", holdManySQL, identities(jobs), jobEnd, into)
}

// JobFinish calls pawl_v1.job_finish.
func JobFinish(ctx context.Context, db DB, id, fence int64) (lanes Lanes, err error) {
	err = one(ctx, db, "job.finish", finishSQL, []any{id, fence}, new(string), &lanes)
	return lanes, err
}

// JobFinishMany calls pawl_v1.job_finish_many.
func JobFinishMany(ctx context.Context, db DB, jobs []Holding, skipStale bool) ([]JobEndRow, error) {
	return collected(ctx, db, "job.finish", finishManySQL, finishManyArgs(jobs, skipStale), readEnds)
}

// JobFinishManyStep is JobFinishMany as a step.
func JobFinishManyStep(jobs []Holding, skipStale bool, into func([]JobEndRow)) Step {
	return steps("job.finish", finishManySQL, finishManyArgs(jobs, skipStale), jobEnd, into)
}

func finishManyArgs(jobs []Holding, skipStale bool) []any {
	o := Options{}
	set(o, "skip_stale", skipStale)
	return append(identities(jobs), o.text())
}

func jobEnd(row pgx.CollectableRow) (r JobEndRow, err error) {
	err = row.Scan(&r.ID, &r.Outcome, &r.Lanes)
	return r, err
}

// JobFailRow is the result of job_fail.
type JobFailRow struct {
	Outcome     string // "retry", "dead_letter", "cancelled" or "unknown"
	AvailableAt time.Time
	Attempts    int
	Lanes       Lanes
}

// JobFailArgs are the arguments of job_fail.
type JobFailArgs struct {
	Failure                Failure
	RetryIn                time.Duration
	Final, Cancel, Unknown bool
	// WaitLimit is how long the job may wait for what the failure says. 0: the attempt failed.
	WaitLimit time.Duration
}

// JobFail calls pawl_v1.job_fail.
func JobFail(ctx context.Context, db DB, id, fence int64, a JobFailArgs) (JobFailRow, error) {
	o := Options{"retry_in_ms": a.RetryIn.Milliseconds()}
	set(o, "final", a.Final)
	set(o, "cancel", a.Cancel)
	set(o, "unknown", a.Unknown)
	set(o, "wait_limit_ms", a.WaitLimit.Milliseconds())
	what := Options{"error": a.Failure.Error}
	set(what, "code", a.Failure.Code)
	var r JobFailRow
	err := one(ctx, db, "job.fail",
		"select f.outcome, f.available_at, f.attempts, f.detail from pawl_v1.job_fail($1, $2, $3::pg_catalog.jsonb, $4::pg_catalog.jsonb) as f",
		[]any{id, fence, what.text(), o.text()},
		&r.Outcome, &r.AvailableAt, &r.Attempts, &r.Lanes)
	return r, err
}

// JobRelease calls pawl_v1.job_release and reports whether the caller still held the job. For
// readOn, see [watched.ReadOn].
func JobRelease(ctx context.Context, db DB, id, fence int64, retryIn time.Duration) (released bool, readOn string, err error) {
	o := Options{}
	set(o, "retry_in_ms", retryIn.Milliseconds())
	var outcome string
	err = one(ctx, db, "job.release", "select r.outcome, coalesce(r.detail operator(pg_catalog.->>) 'unreplicated', '') from pawl_v1.job_release($1, $2, $3::pg_catalog.jsonb) as r",
		[]any{id, fence, o.text()}, &outcome, &readOn)
	return outcome == "released", readOn, err
}
