package job

import (
	"context"
	"fmt"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/contract"
)

// DB is where a job is enqueued: your open pgx.Tx, or a pool or connection for a transaction of its own.
type DB = contract.DB

// A Request is one job to enqueue. The zero value of each option is fit for production.
type Request struct {
	// Queue is whose turn the job waits for; Kind selects the handler. 1 to 255 octets each.
	Queue, Kind string
	// Args is the payload, exact octets, at most 4 MiB. Small is fast: every status change copies payloads under 2 kB.
	Args []byte
	// Key makes the request idempotent: the same key, queue and payload enqueue once. Empty: every request is new.
	Key string
	// Fingerprint tells payloads apart under one Key. Default: over Kind and Args.
	Fingerprint pawl.Fingerprint
	// KeyTTL is how long the key is remembered, also after the job has finished. Shorter than the longest retry of your
	// callers lets a duplicate run. Default 24 h, 1 s to 10 years.
	KeyTTL time.Duration
	// Priority 1 is claimed first, 4 last. Default 2.
	Priority int
	// StartIn delays the first attempt. Default 0, at most a year.
	StartIn time.Duration
	// MaxAttempts bounds the tries before the job becomes a dead letter. Default 25, 1 to 1000.
	MaxAttempts int
	// Headers travel beside the payload.
	Headers map[string]any
}

// Enqueued is what became of a request.
type Enqueued struct {
	ID int64
	// Duplicate: an earlier request with this key made the job ID, which may have finished since.
	Duplicate bool
}

// Enqueue stores the job. In your transaction it becomes visible if and only if you commit.
//
// Errors: [pawl.ErrKeyReused] if the key came before with another payload; [pawl.ErrArgumentInvalid] outside a bound.
func Enqueue(ctx context.Context, db DB, r Request) (Enqueued, error) {
	row, err := contract.JobEnqueue(ctx, db, contract.JobEnqueueArgs{
		Queue: r.Queue, Kind: r.Kind, Args: r.Args, Key: r.Key, Fingerprint: r.Fingerprint, KeyTTL: r.KeyTTL,
		Priority: r.Priority, StartIn: r.StartIn, MaxAttempts: r.MaxAttempts, Headers: r.Headers,
	})
	if err != nil {
		return Enqueued{}, err
	}
	switch row.Outcome {
	case "enqueued":
		return Enqueued{ID: row.JobID}, nil
	case "duplicate":
		return Enqueued{ID: row.JobID, Duplicate: true}, nil
	}
	return Enqueued{}, &pawl.Error{Op: "job.enqueue", Code: pawl.CodeUnknownState, Err: fmt.Errorf("outcome %q", row.Outcome)}
}
