package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	stragglers    = 8
	stragglerLoad = 2000 // other jobs a second, so that claims move past them
)

// straggle measures the time from COMMIT to the start of the handler for jobs enqueued in long
// transactions.
func straggle(ctx context.Context, b *bed, s scale) (r Round, err error) {
	var (
		mu        sync.Mutex
		committed [stragglers]time.Time
		waits     []float64
		picked    = make(chan struct{}) // closed when all have started
	)
	stop, err := b.work(ctx, task{form: noop, ended: func(int) {}, started: func(p payload) {
		if p.At < 0 {
			mu.Lock()
			waits = append(waits, float64(time.Since(committed[-p.At-1]).Microseconds())/1000)
			if len(waits) == stragglers {
				close(picked)
			}
			mu.Unlock()
		}
	}})
	if err != nil {
		return r, err
	}
	defer stop()
	var open [stragglers]pgx.Tx
	for i := range open {
		if open[i], err = b.pool.Begin(ctx); err != nil {
			return r, err
		}
		defer func() { _ = open[i].Rollback(context.WithoutCancel(ctx)) }()
		if err := b.enqueueIn(ctx, open[i], payload{At: int64(-i - 1)}); err != nil {
			return r, err
		}
	}
	if err := b.offer(ctx, stragglerLoad, s.straggle); err != nil {
		return r, err
	}
	for i := range open {
		mu.Lock()
		committed[i] = time.Now()
		err := open[i].Commit(ctx)
		mu.Unlock()
		if err != nil {
			return r, err
		}
		if err := b.offer(ctx, stragglerLoad, s.straggle/20); err != nil {
			return r, err
		}
	}
	if err := b.offer(ctx, stragglerLoad, time.Second); err != nil {
		return r, err
	}
	within(picked, time.Minute) // a busy machine may lag behind with the other jobs
	mu.Lock()
	defer mu.Unlock()
	if len(waits) < stragglers {
		return r, fmt.Errorf("only %d of %d were picked up within a minute", len(waits), stragglers)
	}
	r.Value, r.P99, r.Count = median(waits), quantile(waits, 0.99), len(waits)
	r.Said = fmt.Sprintf("open for %v, %d other jobs/s", s.straggle, stragglerLoad)
	return r, nil
}
