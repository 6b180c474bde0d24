package job

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/conns"
	"github.com/pawl-go/pawl/internal/contract"
)

const archiveSweepEvery = time.Minute

// An archiveKeeper empties unlocked archive tables older than a week. Every worker has one.
type archiveKeeper struct {
	w     *Worker
	every time.Duration
	due   time.Time
}

func (w *Worker) newArchiveKeeper() *archiveKeeper {
	return &archiveKeeper{w: w, every: archiveSweepEvery, due: time.Now().Add(archiveSweepEvery)}
}

func (k *archiveKeeper) keep(ctx context.Context) {
	if time.Now().Before(k.due) {
		return
	}
	limited, cancel := context.WithTimeout(ctx, statementLimit)
	defer cancel()
	// The sweep refuses other isolation levels, and the database's default may be another.
	err := pgx.BeginTxFunc(limited, k.w.pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		_, err := contract.ArchiveSweep(limited, tx)
		return err
	})
	k.due = time.Now().Add(k.every)
	conns.LeaveStandby(k.w.pool, err)
	if err != nil && ctx.Err() == nil {
		k.w.emit(ctx, pawl.Event{Kind: pawl.EventError, Op: "archive.sweep", Err: pawl.Wrap("archive.sweep", err)})
	}
}
