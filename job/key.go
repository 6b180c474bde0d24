package job

import (
	"context"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/contract"
	"github.com/pawl-go/pawl/internal/pace"
)

const keyPurgeEvery = time.Minute

// A keyKeeper purges expired keys of ended jobs, in all queues. Every worker has one.
type keyKeeper struct {
	w     *Worker
	due   time.Time
	since string // where the next batch of this round starts
	pace  pace.Pace
}

func (w *Worker) newKeyKeeper() *keyKeeper {
	return &keyKeeper{w: w, due: time.Now().Add(keyPurgeEvery)}
}

// keep purges one batch, so that it does not delay the other sweeps for long. If the batch was
// full, the next is due after four times its duration, else after keyPurgeEvery.
func (k *keyKeeper) keep(ctx context.Context) {
	began := time.Now()
	if began.Before(k.due) {
		return
	}
	limited, cancel := context.WithTimeout(ctx, statementLimit)
	defer cancel()
	batch := k.pace.Rows()
	row, err := contract.JobKeyPurge(limited, k.w.pool, contract.PurgeArgs{OlderThan: -1, Limit: batch, Since: k.since})
	k.pace.Took(time.Since(began))
	k.due, k.since = time.Now().Add(keyPurgeEvery), ""
	switch {
	case err != nil && ctx.Err() == nil:
		k.w.emit(ctx, pawl.Event{Kind: pawl.EventError, Op: "job_key.purge", Err: err})
	case err == nil && row.Purged+row.Kept == batch:
		k.due, k.since = time.Now().Add(4*time.Since(began)), row.Next
	}
}
