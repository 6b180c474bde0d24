package main

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/pawl-go/pawl/job"
)

// blockedLanes is the number of lanes behind a dead letter. Together they have 100,000 jobs.
const blockedLanes = 1000

// blocked measures a drain of free jobs, first alone (Clean), then beside jobs in lanes whose head
// is a dead letter (Value).
func blocked(n int) measure {
	return func(ctx context.Context, b *bed, s scale) (r Round, err error) {
		n := max(batchSize, int(float64(n)*s.work))
		if r.Clean, err = b.drained(ctx, n, s); err != nil {
			return r, err
		}
		behind := max(1, s.blocked/blockedLanes)
		if err := b.block(ctx, behind); err != nil {
			return r, err
		}
		if r.Value, err = b.drained(ctx, n, s); err != nil {
			return r, err
		}
		r.Count = n
		r.Said = fmt.Sprintf("%.0f %% of its clean rate beside %d blocked jobs", 100*r.Value/r.Clean, behind*blockedLanes)
		left, err := b.waiting(ctx)
		if err == nil && left != (behind+1)*blockedLanes {
			err = fmt.Errorf("%d jobs are left, want %d", left, (behind+1)*blockedLanes)
		}
		return r, err
	}
}

// drained returns the rate at which n jobs are drained.
func (b *bed) drained(ctx context.Context, n int, s scale) (perSecond float64, err error) {
	if err := b.fill(ctx, n); err != nil {
		return 0, err
	}
	if err := b.ready(ctx); err != nil {
		return 0, err
	}
	ended, took, stop, err := b.workOff(ctx, noop, n, 10*s.drain)
	if err != nil {
		return 0, err
	}
	stop()
	if ended < n {
		return 0, fmt.Errorf("%d of %d jobs ended within %v", ended, n, took)
	}
	return float64(ended) / took.Seconds(), nil
}

// block fills the lanes and dead-letters the head of each, which blocks the jobs behind it.
func (b *bed) block(ctx context.Context, behind int) error {
	args, err := json.Marshal(payload{})
	if err != nil {
		return err
	}
	requests := make([]job.Request, blockedLanes)
	for i := range requests {
		requests[i] = job.Request{Queue: queue, Kind: kind, Payload: args, Lane: fmt.Sprint("lane ", i)}
	}
	for range behind + 1 {
		if _, err := job.EnqueueMany(ctx, b.pool, requests); err != nil {
			return err
		}
	}
	_, err = b.pool.Exec(ctx, "update pawl.job as j set status = 'dead_letter' where j.lane_head")
	return err
}
