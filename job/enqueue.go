package job

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/contract"
	"github.com/pawl-go/pawl/internal/kick"
	"github.com/pawl-go/pawl/internal/ranges"
	"github.com/pawl-go/pawl/internal/txn"
)

// A Request is one job to enqueue. The zero value of each option is fit for production.
type Request struct {
	// Queue is where the job waits. Kind selects the handler. Both have 1 to 255 octets.
	Queue, Kind string
	// Payload is stored unchanged, at most 4 MiB. Every status change copies payloads under 2 kB.
	Payload []byte
	// Value is encoded as JSON into Payload, for handlers that decode a type. Set one of the two.
	Value any
	// Key makes the request idempotent: requests with the same queue, key and payload enqueue one
	// job, and another payload is refused with [pawl.ErrKeyReused]. Up to 255 octets. Empty: every
	// request enqueues a job.
	Key string
	// Fingerprint detects a different payload under the same Key. Default: over Kind and Payload.
	Fingerprint pawl.Fingerprint
	// Retention is how long the key is remembered, even after the job has finished. A caller that
	// retries later can enqueue a duplicate. Default 24 h, 1 s to 10 years.
	Retention time.Duration
	// Priority 1 is claimed first, 4 last. Default 2.
	Priority int
	// StartIn delays the first attempt. Default 0, at most a year.
	StartIn time.Duration
	// MaxAttempts is the number of attempts before a dead letter. Default 25, 1 to 1000.
	MaxAttempts int
	// Headers are stored with the payload. The trace of the context is added; see [pawl.WithTrace].
	Headers map[string]any
	// Lane is the name of an ordered sequence, often an id such as that of an account. Jobs of one
	// lane of a queue run one at a time, in the order in which they were enqueued. Keep the
	// transaction short: until it ends, other enqueues into the lane wait, and the lane may stop.
	// Default none, up to 255 octets.
	Lane string
	// LanePolicy is what the lane does when its head becomes a dead letter; see [LaneBlock]. It
	// applies if this request creates the lane. Default LaneBlock.
	LanePolicy LanePolicy
}

// A LanePolicy is what a lane does when the job that has the turn becomes a dead letter.
type LanePolicy string

// The policies of a lane.
const (
	// LaneBlock stops the lane until an operator retries or discards the job, or unblocks the lane.
	LaneBlock LanePolicy = "block"
	LanePark  LanePolicy = "park" // the lane continues; a retried job gets its old position back
	LaneSkip  LanePolicy = "skip" // the lane continues; a retried job runs outside the lane
)

// Enqueued is the result of a request.
type Enqueued struct {
	ID int64
	// Duplicate: an earlier request with this key created the job ID, which may have finished.
	Duplicate bool
}

// Enqueue stores the job. In your transaction the job becomes visible if and only if you commit. On
// a pool it takes one round trip. If its reply is lost, enqueue again with the same Key. An idle
// worker is notified when your transaction commits; for long transactions see [Kick].
//
// With synchronous standbys, a duplicate is also a result that must be replicated. On a pool,
// Enqueue returns it once it is ([pawl.ErrCommitUnknown] if it cannot find out). In your
// transaction the result is valid after your COMMIT, and not after a rollback.
//
// Errors: [pawl.ErrKeyReused] for another payload; [pawl.ErrArgumentInvalid] outside a bound.
func Enqueue(ctx context.Context, db DB, r Request) (Enqueued, error) {
	args, err := r.args(ctx)
	if err != nil {
		return Enqueued{}, err
	}
	row, err := contract.JobEnqueue(ctx, db, args)
	if err != nil {
		return Enqueued{}, err
	}
	kick.AfterCommit(db, r.Queue)
	if err := replicated(ctx, db, row.ReadOn); err != nil {
		return Enqueued{}, err
	}
	return enqueued(row)
}

// EnqueueMany stores up to 10,000 jobs in one statement, all or none, and returns their results in
// order. Two requests with the same key create one job. All keys are remembered for the longest
// Retention among the requests. Requests with a Lane must have the same LanePolicy.
//
// Errors: as for [Enqueue]. Two transactions that make several calls with common keys or lanes can
// deadlock. PostgreSQL then ends one with 40P01; run that transaction again from the start.
func EnqueueMany(ctx context.Context, db DB, requests []Request) ([]Enqueued, error) {
	if len(requests) == 0 {
		return nil, nil
	}
	all := make([]contract.JobEnqueueArgs, len(requests))
	var retention time.Duration
	for i, r := range requests {
		args, err := r.args(ctx)
		if err != nil {
			return nil, fmt.Errorf("request %d: %w", i, err)
		}
		all[i], retention = args, max(retention, r.Retention)
	}
	policy, err := commonPolicy(requests)
	if err != nil {
		return nil, err
	}
	rows, err := contract.JobEnqueueMany(ctx, db, all, retention, string(policy))
	if err != nil {
		return nil, err
	}
	if err := replicated(ctx, db, rows[0].ReadOn); err != nil {
		return nil, err
	}
	results := make([]Enqueued, len(rows))
	for i, row := range rows {
		if i == 0 || requests[i].Queue != requests[i-1].Queue {
			kick.AfterCommit(db, requests[i].Queue)
		}
		if results[i], err = enqueued(row); err != nil {
			return nil, err
		}
	}
	return results, nil
}

// replicated waits until what was read is replicated, if db is a pool. In a transaction, COMMIT
// waits for that.
func replicated(ctx context.Context, db DB, readOn string) error {
	if pool, is := db.(*pgxpool.Pool); is {
		return txn.Replicated(ctx, pool, readOn)
	}
	return nil
}

// commonPolicy returns the LanePolicy that all requests with a lane share.
func commonPolicy(requests []Request) (policy LanePolicy, err error) {
	first := true
	for i, r := range requests {
		switch {
		case r.Lane == "":
		case first:
			policy, first = r.LanePolicy, false
		case r.LanePolicy != policy:
			return "", fmt.Errorf("request %d: %w", i, &pawl.Error{Op: "job.enqueue", Code: pawl.CodeArgumentInvalid,
				Err: fmt.Errorf("the LanePolicy is %q, but earlier requests have %q", r.LanePolicy, policy), Hint: "send one batch for each LanePolicy"})
		}
	}
	return policy, nil
}

func (r Request) args(ctx context.Context) (contract.JobEnqueueArgs, error) {
	args := contract.JobEnqueueArgs{
		Queue: r.Queue, Kind: r.Kind, Payload: r.Payload, Key: r.Key, Fingerprint: r.Fingerprint, Retention: r.Retention,
		Priority: r.Priority, StartIn: r.StartIn, MaxAttempts: r.MaxAttempts, Headers: withTrace(ctx, r.Headers),
		Lane: r.Lane, LanePolicy: string(r.LanePolicy),
	}
	// Several requests have the longest Retention, which hides a negative one.
	if r.Retention < 0 || r.StartIn < 0 {
		return args, &pawl.Error{Op: "job.enqueue", Code: pawl.CodeArgumentInvalid, Err: ranges.NotNegative(r)}
	}
	if r.LanePolicy != "" && r.Lane == "" {
		return args, &pawl.Error{Op: "job.enqueue", Code: pawl.CodeArgumentInvalid,
			Err: errors.New("the request has a LanePolicy and no Lane"), Hint: "name the Lane"}
	}
	if r.Value == nil {
		return args, nil
	}
	if r.Payload != nil {
		return args, &pawl.Error{Op: "job.enqueue", Code: pawl.CodeArgumentInvalid,
			Err: errors.New("the request has both Payload and Value"), Hint: "give one of the two"}
	}
	var err error
	if args.Payload, err = json.Marshal(r.Value); err != nil {
		return args, &pawl.Error{Op: "job.enqueue", Code: pawl.CodeArgumentInvalid, Err: err, Hint: "encode the payload yourself, in Payload"}
	}
	return args, nil
}

func enqueued(row contract.JobEnqueueRow) (Enqueued, error) {
	switch row.Outcome {
	case "enqueued":
		return Enqueued{ID: row.JobID}, nil
	case "duplicate":
		return Enqueued{ID: row.JobID, Duplicate: true}, nil
	}
	return Enqueued{}, &pawl.Error{Op: "job.enqueue", Code: pawl.CodeUnknownState, Err: fmt.Errorf("outcome %q", row.Outcome)}
}

// The headers of W3C Trace Context.
const traceParent, traceState = "traceparent", "tracestate"

// withTrace adds the trace of ctx, unless headers already have one.
func withTrace(ctx context.Context, headers map[string]any) map[string]any {
	t := pawl.TraceOf(ctx)
	if _, given := headers[traceParent]; t.Parent == "" || given {
		return headers
	}
	all := make(map[string]any, len(headers)+2)
	maps.Copy(all, headers)
	all[traceParent] = t.Parent
	if t.State != "" {
		all[traceState] = t.State
	}
	return all
}

// traceOf adds the trace of a single job's enqueuer to ctx. Several jobs have different traces.
func traceOf(ctx context.Context, jobs []Job) context.Context {
	if len(jobs) != 1 || jobs[0].Headers == nil {
		return ctx
	}
	if t := jobs[0].Trace(); t.Valid() {
		return pawl.WithTrace(ctx, t)
	}
	return ctx
}

// Trace returns the trace in which the job was enqueued, or the zero Trace.
func (j Job) Trace() pawl.Trace {
	parent, _ := j.Headers[traceParent].(string)
	state, _ := j.Headers[traceState].(string)
	if t := (pawl.Trace{Parent: parent, State: state}); t.Valid() {
		return t
	}
	return pawl.Trace{}
}
