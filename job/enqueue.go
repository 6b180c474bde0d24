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
	"github.com/pawl-go/pawl/internal/txn"
)

// A Request is one job to enqueue. The zero value of each option is fit for production.
type Request struct {
	// Queue is where the job waits; Kind selects the handler. 1 to 255 octets each.
	Queue, Kind string
	// Payload is sent as it is, exact octets, at most 4 MiB. Small is fast: every status change copies payloads under 2 kB.
	Payload []byte
	// Value is encoded as JSON into Payload, for handlers that take a type; give one of the two.
	Value any
	// Key makes the request idempotent: the same key, queue and payload enqueue once. Empty: every request is new.
	Key string
	// Fingerprint tells payloads apart under one Key. Default: over Kind and Payload.
	Fingerprint pawl.Fingerprint
	// Retention is how long the key is remembered, also after the job has finished. Shorter than the longest retry of your
	// callers lets a duplicate run. Default 24 h, 1 s to 10 years.
	Retention time.Duration
	// Priority 1 is claimed first, 4 last. Default 2.
	Priority int
	// StartIn delays the first attempt. Default 0, at most a year.
	StartIn time.Duration
	// MaxAttempts bounds the tries before the job becomes a dead letter. Default 25, 1 to 1000.
	MaxAttempts int
	// Headers travel beside the payload. The trace of the context joins them, see [pawl.WithTrace].
	Headers map[string]any
	// Lane names what must happen in order: jobs of one lane of a queue run one at a time, in the order in which they were
	// enqueued. Usually an id of yours, such as that of an account. Until your transaction ends, others that enqueue into
	// the lane wait, and the lane may stand still: keep it short. Default none; up to 255 octets.
	Lane string
	// LanePolicy is what the lane does when the job that has the turn becomes a dead letter, if this request is the lane's
	// first; see [LaneBlock]. A lane that exists keeps its policy. Default LaneBlock.
	LanePolicy LanePolicy
}

// A LanePolicy is what a lane does when the job that has the turn becomes a dead letter.
type LanePolicy string

// The policies of a lane.
const (
	LaneBlock LanePolicy = "block" // the lane stands until somebody retries or discards the job, or unblocks the lane
	LanePark  LanePolicy = "park"  // the lane goes on; a retry brings the job back at its old position
	LaneSkip  LanePolicy = "skip"  // the lane goes on; a retry runs the job outside of it
)

// Enqueued is what became of a request.
type Enqueued struct {
	ID int64
	// Duplicate: an earlier request with this key made the job ID, which may have finished since.
	Duplicate bool
}

// Enqueue stores the job. In your transaction it becomes visible if and only if you commit; on a pool it is one round
// trip. If the reply to that one is lost, enqueue again with the same Key. A worker that sleeps is woken when your transaction
// commits; see [Kick] for transactions that stay open.
//
// With synchronous standbys, that a job is there already is an answer like any other: on a pool it comes once the job is replicated
// ([pawl.ErrCommitUnknown] if that cannot be told); in your transaction it holds once that has committed, not after a rollback.
//
// Errors: [pawl.ErrKeyReused] if the key came before with another payload; [pawl.ErrArgumentInvalid] outside a bound.
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
	if err := proved(ctx, db, row.ReadOn); err != nil {
		return Enqueued{}, err
	}
	return enqueued(row)
}

// EnqueueMany stores up to 10,000 jobs in one statement, all of them or none, and answers in their order. A key that
// stands twice in the batch makes one job. All keys are remembered for the longest Retention among the requests. Requests with a
// Lane must agree in their LanePolicy.
//
// Errors: as of [Enqueue]. Two transactions that each make several calls, with keys or lanes in common, can deadlock:
// PostgreSQL then ends one with 40P01, and it must be run again from the start.
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
	if err := proved(ctx, db, rows[0].ReadOn); err != nil {
		return nil, err
	}
	answers := make([]Enqueued, len(rows))
	for i, row := range rows {
		if i == 0 || requests[i].Queue != requests[i-1].Queue {
			kick.AfterCommit(db, requests[i].Queue)
		}
		if answers[i], err = enqueued(row); err != nil {
			return nil, err
		}
	}
	return answers, nil
}

// proved returns once what was read on a server is replicated, if db is a pool. In a transaction of
// yours its COMMIT proves it.
func proved(ctx context.Context, db DB, readOn string) error {
	if pool, is := db.(*pgxpool.Pool); is {
		return txn.Replicated(ctx, pool, readOn)
	}
	return nil
}

// commonPolicy returns the one policy of all requests that have a lane.
func commonPolicy(requests []Request) (policy LanePolicy, err error) {
	first := true
	for i, r := range requests {
		switch {
		case r.Lane == "":
		case first:
			policy, first = r.LanePolicy, false
		case r.LanePolicy != policy:
			return "", fmt.Errorf("request %d: %w", i, &pawl.Error{Op: "job.enqueue", Code: pawl.CodeArgumentInvalid,
				Err: fmt.Errorf("the LanePolicy is %q, that of the lanes before it %q", r.LanePolicy, policy), Hint: "send one batch a policy"})
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

// withTrace adds the trace of ctx, unless the caller has set one.
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

// traceOf returns a handler's context, in the trace of whoever enqueued the job; of many jobs in none, as theirs differ.
func traceOf(ctx context.Context, jobs []Job) context.Context {
	if len(jobs) != 1 || jobs[0].Headers == nil {
		return ctx
	}
	if t := jobs[0].Trace(); t.Valid() {
		return pawl.WithTrace(ctx, t)
	}
	return ctx
}

// Trace returns the trace of whoever enqueued the job; the zero Trace if there was none.
func (j Job) Trace() pawl.Trace {
	parent, _ := j.Headers[traceParent].(string)
	state, _ := j.Headers[traceState].(string)
	if t := (pawl.Trace{Parent: parent, State: state}); t.Valid() {
		return t
	}
	return pawl.Trace{}
}
