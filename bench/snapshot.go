package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
)

// backlog bounds the waiting jobs while a feeder keeps workers busy.
const backlog = 20_000

// feed keeps jobs waiting until stop is called. stop returns the feeder's error. feed returns when
// the first job has ended, because some workers start slowly.
func (b *bed) feed(ctx context.Context, ended *atomic.Int64) (stop func() error) {
	ctx, cancel := context.WithCancel(ctx)
	done, before := make(chan error, 1), ended.Load()
	go func() {
		for sent := int64(0); ctx.Err() == nil; {
			if sent-(ended.Load()-before) > backlog {
				time.Sleep(time.Millisecond)
				continue
			}
			if err := b.enqueueMany(ctx, manySize, payload{At: time.Now().UnixNano()}); err != nil && ctx.Err() == nil {
				done <- err
				return
			}
			sent += manySize
		}
		done <- nil
	}()
	for start := time.Now(); ended.Load() == before && time.Since(start) < 30*time.Second && ctx.Err() == nil; {
		time.Sleep(time.Millisecond)
	}
	return func() error { cancel(); return <-done }
}

// sustained returns the rate of ended jobs while others are enqueued, and waits until all are done.
func (b *bed) sustained(ctx context.Context, ended *atomic.Int64, s scale) (perSecond float64, err error) {
	stop := b.feed(ctx, ended)
	time.Sleep(s.warm)
	perSecond = rate(ended, s.clean)
	if err := stop(); err != nil {
		return 0, err
	}
	for left := 1; left > 0; {
		if left, err = b.waiting(ctx); err != nil {
			return 0, err
		}
		time.Sleep(20 * time.Millisecond)
	}
	return perSecond, nil
}

func rate(ended *atomic.Int64, d time.Duration) (perSecond float64) {
	before, start := ended.Load(), time.Now()
	time.Sleep(d)
	return float64(ended.Load()-before) / time.Since(start).Seconds()
}

// watched returns by how much count grows in d. If it does not grow, watched waits up to 20 s,
// because a busy machine may stall for as long as the times of the tiny scale.
func watched(ctx context.Context, d time.Duration, count *atomic.Int64) (n int64, took time.Duration) {
	before, start := count.Load(), time.Now()
	for n == 0 && ctx.Err() == nil && time.Since(start) < 20*time.Second {
		time.Sleep(d)
		n = count.Load() - before
	}
	return n, time.Since(start)
}

// heldSaturated measures workers that always find jobs, first undisturbed (Clean), then at the end
// of a period in which an idle transaction holds its snapshot (Value). During that period nothing
// can be vacuumed.
func heldSaturated(ctx context.Context, b *bed, s scale) (r Round, err error) {
	if err := b.ready(ctx); err != nil {
		return r, err
	}
	var ended atomic.Int64
	stopWork, err := b.work(ctx, task{form: noop, ended: func(n int) { ended.Add(int64(n)) }})
	if err != nil {
		return r, err
	}
	defer stopWork()
	stopFeed := b.feed(ctx, &ended)
	time.Sleep(s.warm)
	r.Clean = rate(&ended, s.clean)
	release, err := b.hold(ctx)
	if err != nil {
		return r, err
	}
	defer release()
	time.Sleep(s.held - s.clean)
	r.Value = rate(&ended, s.clean)
	r.Count = int(ended.Load())
	r.Said = fmt.Sprintf("%.0f %% of its clean rate after %v", 100*r.Value/r.Clean, s.held)
	return r, stopFeed()
}

// heldHalf offers half of the contender's sustained rate for s.half under a held snapshot.
func heldHalf(ctx context.Context, b *bed, s scale) (r Round, err error) {
	var ended atomic.Int64
	stopWork, err := b.work(ctx, task{form: noop, ended: func(n int) { ended.Add(int64(n)) }})
	if err != nil {
		return r, err
	}
	defer stopWork()
	full, err := b.sustained(ctx, &ended, s)
	if err != nil {
		return r, err
	}
	release, err := b.hold(ctx)
	if err != nil {
		return r, err
	}
	defer release()
	r.Clean = full / 2
	if err := b.offer(ctx, r.Clean, s.half-s.clean); err != nil {
		return r, err
	}
	before := ended.Load()
	err = b.offer(ctx, r.Clean, s.clean)
	r.Value = float64(ended.Load()-before) / s.clean.Seconds()
	r.Said = fmt.Sprintf("%.0f of %.0f jobs/s offered, after %v", r.Value, r.Clean, s.half)
	return r, err
}

// hold opens a REPEATABLE READ transaction on its own connection and leaves it idle.
func (b *bed) hold(ctx context.Context) (release func(), err error) {
	conn, err := pgx.Connect(ctx, b.url)
	if err != nil {
		return nil, err
	}
	_, err = conn.Exec(ctx, "begin isolation level repeatable read; select count(*) from effect")
	return func() { _ = conn.Close(context.WithoutCancel(ctx)) }, err
}
