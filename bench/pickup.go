package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"sync"
	"sync/atomic"
	"time"
)

// A pickup is how jobs come to an idle queue.
type pickup struct {
	deaf    bool                              // the worker is not woken
	enqueue func(context.Context, *bed) error // in place of the contender's
}

// pickupIdle measures the time from the call that enqueues a job to the start of its handler, on an idle queue whose
// workers have their default settings.
func pickupIdle(how pickup) measure {
	return func(ctx context.Context, b *bed, s scale) (r Round, err error) {
		started := make(chan float64, 1)
		stop, err := b.work(ctx, task{form: noop, polite: true, deaf: how.deaf, ended: func(int) {},
			started: func(p payload) { started <- sinceMs(p) }})
		if err != nil {
			return r, err
		}
		defer stop()
		var waits []float64
		for i := range s.pickups + 1 {
			time.Sleep(s.idle + rand.N(500*time.Millisecond+1)) // idle by now, and in step with nobody's poll
			if how.enqueue != nil {
				err = how.enqueue(ctx, b)
			} else {
				err = b.enqueue(ctx, payload{At: time.Now().UnixNano()})
			}
			if err != nil {
				return r, err
			}
			select {
			case ms := <-started:
				if i > 0 { // the first finds workers that are still starting
					waits = append(waits, ms)
				}
			case <-time.After(30 * time.Second):
				return r, fmt.Errorf("the job was not picked up within 30 s")
			}
		}
		r.Value, r.P99, r.Count = median(waits), quantile(waits, 0.99), len(waits)
		return r, nil
	}
}

// byPsql enqueues from a process that knows nothing but SQL. Its start is not counted: the server reads the clock, which is this machine's.
func byPsql(ctx context.Context, b *bed) error {
	out, err := exec.CommandContext(ctx, "psql", "-XAtqc", `select e.outcome from pawl_v1.job_enqueue('bench', 'bench',
  convert_to('{"at": ' || (extract(epoch from clock_timestamp()) * 1000000)::bigint || '000}', 'UTF8')) as e`, b.url).CombinedOutput()
	if err != nil {
		return fmt.Errorf("psql: %w: %s", err, out)
	}
	return nil
}

func sinceMs(p payload) float64 { return float64(time.Now().UnixNano()-p.At) / 1e6 }

// pickupHalf measures the same at half of what the contender sustains, which it finds out first.
func pickupHalf(ctx context.Context, b *bed, s scale) (r Round, err error) {
	var (
		mu    sync.Mutex
		waits []float64
		ended atomic.Int64
		on    atomic.Bool
	)
	stop, err := b.work(ctx, task{form: noop, ended: func(n int) { ended.Add(int64(n)) }, started: func(p payload) {
		if on.Load() {
			ms := sinceMs(p)
			mu.Lock()
			waits = append(waits, ms)
			mu.Unlock()
		}
	}})
	if err != nil {
		return r, err
	}
	defer stop()
	full, err := b.sustained(ctx, &ended, s)
	if err != nil {
		return r, err
	}
	err = b.offer(ctx, full/2, s.warm, func() {})
	if err == nil {
		err = b.offer(ctx, full/2, s.clean, func() { on.Store(true) })
	}
	mu.Lock()
	defer mu.Unlock()
	r.Value, r.P99, r.Count = median(waits), quantile(waits, 0.99), len(waits)
	r.Said = fmt.Sprintf("%.0f jobs/s offered", full/2)
	return r, err
}

// offer enqueues at a rate for some time, in calls every 5 ms.
func (b *bed) offer(ctx context.Context, perSecond float64, d time.Duration, begin func()) error {
	begin()
	start, sent := time.Now(), 0
	for time.Since(start) < d {
		due := int(time.Since(start).Seconds()*perSecond) + 1
		if n := min(due-sent, manySize); n > 0 {
			if err := b.enqueueMany(ctx, n, payload{At: time.Now().UnixNano()}); err != nil {
				return err
			}
			sent += n
		}
		time.Sleep(5 * time.Millisecond)
	}
	return nil
}
