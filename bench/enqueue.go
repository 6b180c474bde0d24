package main

import "context"

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
		calls, ended := committing(callers, func() error { return call(ctx, b) })
		n, took := watched(ctx, s.enqueue, calls)
		if err := ended(); err != nil {
			return r, err
		}
		jobs := int(n) * each
		r.Value = float64(jobs) / took.Seconds()
		return r, m.charge(ctx, &r, jobs)
	}
}
