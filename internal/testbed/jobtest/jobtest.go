// Package jobtest claims jobs for tests, as a worker does.
package jobtest

import (
	"context"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/contract"
	"github.com/pawl-go/pawl/job"
)

// Claim claims up to limit due jobs of a queue for a registered worker.
func Claim(ctx context.Context, db pawl.DB, queue string, worker int64, limit int) (jobs []job.Job, err error) {
	rows, err := contract.JobClaim(ctx, db, queue, worker, limit, nil, true, contract.Marks{})
	for _, r := range rows {
		jobs = append(jobs, job.Job{ID: r.ID, Fence: r.Fence, Queue: r.Queue, Kind: r.Kind, Payload: r.Payload, Headers: r.Headers,
			Attempt: r.Attempts, MaxAttempts: r.MaxAttempts, Crashes: r.Crashes, CreatedAt: r.CreatedAt, Lane: r.LanePosition.Lane, Position: r.LanePosition.Position})
	}
	return jobs, err
}
