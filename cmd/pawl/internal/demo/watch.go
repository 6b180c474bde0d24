package demo

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
)

// A Display shows the progress of a run.
type Display interface {
	Note(line string)
	Progress(Progress)
}

// Progress is the state of a run.
type Progress struct {
	Effects, Orders  int // orders applied, and orders that can be applied
	Deliveries       int64
	Duplicates       int64
	Retried          int64
	Kills, KillsWant int
	LastKill         string
	Elapsed          time.Duration
}

// A watcher counts effects through its own connection.
type watcher struct {
	effects atomic.Int64
	once    sync.Once
	cancel  context.CancelFunc
	done    chan struct{}
}

func (w *watcher) stop() {
	w.once.Do(w.cancel)
	<-w.done
}

func (g *game) watch(ctx context.Context) *watcher {
	ctx, cancel := context.WithCancel(ctx)
	w := &watcher{cancel: cancel, done: make(chan struct{})}
	began := time.Now()
	go func() {
		defer close(w.done)
		conn, err := pgx.ConnectConfig(ctx, g.database.conn.Config())
		if err != nil {
			return
		}
		defer conn.Close(context.WithoutCancel(ctx))
		var n int64
		for ctx.Err() == nil {
			if err := conn.QueryRow(ctx, inSchema("select pg_catalog.count(*) from SCHEMA.orders as o", g.database.schema)).Scan(&n); err == nil {
				w.effects.Store(n)
			}
			g.display.Progress(g.progress(int(n), time.Since(began)))
			select {
			case <-ctx.Done():
			case <-time.After(50 * time.Millisecond):
			}
		}
	}()
	return w
}

func (g *game) progress(effects int, elapsed time.Duration) Progress {
	return Progress{Effects: effects, Orders: g.Messages - g.Poison, Deliveries: g.deliveries(),
		Duplicates: g.crew.events.count("duplicate_skipped"), Retried: g.crew.events.count("retryable"),
		Kills: g.killer.killed(), KillsWant: g.Kills, LastKill: g.killer.last(), Elapsed: elapsed}
}
