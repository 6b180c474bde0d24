package main

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// enqueueSingle measures autocommitted calls of one job each by concurrent callers.
func enqueueSingle(callers int) measure {
	return enqueueLoop(callers, 1, func(ctx context.Context, b *bed) error { return b.enqueue(ctx, payload{}) })
}

// enqueueBare measures the insert alone, sent in the same way as enqueueSingle's call. It is the
// least cost for a Go client.
func enqueueBare(callers int) measure {
	return enqueueLoop(callers, 1, func(ctx context.Context, b *bed) error {
		var id int64
		return b.pool.QueryRow(ctx, "insert into pawl.job (queue, kind, payload) values ($1, $2, $3) returning id", queue, kind, []byte(`{"at":0}`)).Scan(&id)
	})
}

// enqueueBatched measures calls of 1,000 jobs by one caller.
func enqueueBatched(ctx context.Context, b *bed, s scale) (Round, error) {
	return enqueueLoop(1, manySize, func(ctx context.Context, b *bed) error {
		return b.enqueueMany(ctx, manySize, payload{})
	})(ctx, b, s)
}

// enqueueInserted is enqueueBatched for River without COPY, which returns the rows.
func enqueueInserted(ctx context.Context, b *bed, s scale) (Round, error) {
	b.contender.(*riverQueue).copies = false
	return enqueueBatched(ctx, b, s)
}

func enqueueLoop(callers, each int, call func(context.Context, *bed) error) measure {
	return func(ctx context.Context, b *bed, s scale) (r Round, err error) {
		if err := call(ctx, b); err != nil { // prepares the statements
			return r, err
		}
		if err := b.ready(ctx); err != nil {
			return r, err
		}
		m, err := b.host.meter(ctx)
		if err != nil {
			return r, err
		}
		var (
			calls  atomic.Int64
			failed atomic.Pointer[error]
			all    sync.WaitGroup
			start  = time.Now()
		)
		for range callers {
			all.Go(func() {
				for time.Since(start) < s.enqueue && failed.Load() == nil {
					if err := call(ctx, b); err != nil {
						failed.Store(&err)
						return
					}
					calls.Add(1)
				}
			})
		}
		all.Wait()
		if err := failed.Load(); err != nil {
			return r, *err
		}
		n := int(calls.Load()) * each
		r.Value = float64(n) / time.Since(start).Seconds()
		return r, m.charge(ctx, &r, n)
	}
}
