package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// fill enqueues n jobs without measuring.
func (b *bed) fill(ctx context.Context, n int) error {
	for left := n; left > 0; left -= manySize {
		if err := b.enqueueMany(ctx, min(left, manySize), payload{At: time.Now().UnixNano()}); err != nil {
			return err
		}
	}
	return nil
}

// drain measures how fast one process drains n waiting jobs. It stops when all have ended or when
// time is up.
func drain(f form, n int) measure {
	return func(ctx context.Context, b *bed, s scale) (r Round, err error) {
		n := max(batchSize, int(float64(n)*s.work))
		if err := b.fill(ctx, n); err != nil {
			return r, err
		}
		if err := b.ready(ctx); err != nil {
			return r, err
		}
		m, err := b.host.meter(ctx)
		if err != nil {
			return r, err
		}
		ended, took, stop, err := b.workOff(ctx, f, n, s.drain)
		if err != nil {
			return r, err
		}
		r.Value = float64(ended) / took.Seconds()
		err = m.charge(ctx, &r, ended)
		stop()
		if err == nil {
			err = b.wantDone(ctx, f, n, ended)
		}
		return r, err
	}
}

// workOff starts workers and waits until n jobs have ended or limit is over. It returns how many
// have ended and how long that took.
func (b *bed) workOff(ctx context.Context, f form, n int, limit time.Duration) (int, time.Duration, func(), error) {
	var ended atomic.Int64
	done, once := make(chan struct{}), sync.Once{}
	start := time.Now()
	stop, err := b.work(ctx, task{form: f, ended: func(k int) {
		if ended.Add(int64(k)) >= int64(n) {
			once.Do(func() { close(done) })
		}
	}})
	if err != nil {
		return 0, 0, nil, err
	}
	select {
	case <-done:
	case <-time.After(limit):
	case <-ctx.Done():
	}
	return int(ended.Load()), time.Since(start), stop, ctx.Err()
}

// wantDone compares the database with the client's count. More jobs may have ended after the client
// stopped counting.
func (b *bed) wantDone(ctx context.Context, f form, n, ended int) error {
	left, err := b.waiting(ctx)
	if err == nil && (left > n-ended || ended == 0) {
		err = fmt.Errorf("%d of %d jobs were not done, but %d had ended", left, n, ended)
	}
	if err != nil || f == noop || f == noopBatch {
		return err
	}
	var effects, of int
	err = b.pool.QueryRow(ctx, "select count(*), count(distinct e.job) from effect as e").Scan(&effects, &of)
	if err == nil && (effects != n-left || of != n-left) {
		err = fmt.Errorf("%d effects of %d jobs, wanted %d of each", effects, of, n-left)
	}
	return err
}
