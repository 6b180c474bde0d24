package job

import (
	"context"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/contract"
	"github.com/pawl-go/pawl/internal/pace"
)

const keyPurgeEvery = time.Minute

// A keyKeeper forgets enqueue keys whose memory is over and whose jobs have ended. Every worker has one, for the keys of all queues.
type keyKeeper struct {
	w     *Worker
	due   time.Time
	since string // how far the last batch of this round has looked
	pace  pace.Pace
}

func (w *Worker) newKeyKeeper() *keyKeeper {
	return &keyKeeper{w: w, due: time.Now().Add(keyPurgeEvery)}
}

// keep purges one batch, so that the sweeps beside it do not wait; the next is due after a rest of four times as long, or, if that was
// the last, after a minute.
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
