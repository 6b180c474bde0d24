package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"
)

// A pickup configures how jobs arrive at an idle queue.
type pickup struct {
	// deaf means that the worker is not woken.
	deaf bool
	// open replaces the contender's call.
	open func(ctx context.Context, b *bed) (enqueue func(context.Context) error, closed func(), err error)
}

// pickupIdle measures the time from the call that enqueues a job to the start of its handler. The
// queue is idle and its workers have their default settings.
func pickupIdle(how pickup) measure {
	return func(ctx context.Context, b *bed, s scale) (r Round, err error) {
		started := make(chan float64, 1)
		stop, err := b.work(ctx, task{form: noop, polite: true, deaf: how.deaf, ended: func(int) {},
			started: func(p payload) { started <- sinceMs(p) }})
		if err != nil {
			return r, err
		}
		defer stop()
		enqueue := func(ctx context.Context) error { return b.enqueue(ctx, payload{At: time.Now().UnixNano()}) }
		if how.open != nil {
			var closed func()
			if enqueue, closed, err = how.open(ctx, b); err != nil {
				return r, err
			}
			defer closed()
		}
		return pickedUp(ctx, s, enqueue, started)
	}
}

// pickedUp calls arrive repeatedly, each time when all is idle. started receives the latencies in
// ms.
func pickedUp(ctx context.Context, s scale, arrive func(context.Context) error, started chan float64) (r Round, err error) {
	var waits []float64
	for i := range s.pickups + 1 {
		// Idle by then, and not in step with a poll.
		time.Sleep(s.idle + rand.N(500*time.Millisecond+1))
		if err := arrive(ctx); err != nil {
			return r, err
		}
		select {
		case ms := <-started:
			if i > 0 { // the first may find workers that are still starting
				waits = append(waits, ms)
			}
		case <-ctx.Done():
			return r, ctx.Err()
		case <-time.After(30 * time.Second):
			return r, errors.New("it was not picked up within 30 s")
		}
	}
	r.Value, r.P99, r.Count = median(waits), quantile(waits, 0.99), len(waits)
	return r, nil
}

// enqueueSQL takes the time from the server, which is on this machine, so that the time to reach
// psql does not count.
const enqueueSQL = `select e.outcome from pawl_v1.job_enqueue('bench', 'bench',` +
	` convert_to('{"at": ' || (extract(epoch from clock_timestamp()) * 1000000)::bigint || '000}', 'UTF8')) as e;` + "\n"

// byPsql enqueues from a process that knows only SQL. The session stays open as an application's
// would, because in a new session the server first compiles the functions.
func byPsql(ctx context.Context, b *bed) (enqueue func(context.Context) error, closed func(), err error) {
	psql := exec.CommandContext(ctx, filepath.Join(b.host.server.BinDir(), "psql"), "-XAtq", "-v", "ON_ERROR_STOP=1", b.url)
	psql.Stderr = os.Stderr
	in, err := psql.StdinPipe()
	if err != nil {
		return nil, nil, err
	}
	out, err := psql.StdoutPipe()
	if err != nil {
		return nil, nil, err
	}
	if err := psql.Start(); err != nil {
		return nil, nil, err
	}
	answers := bufio.NewScanner(out)
	enqueue = func(context.Context) error {
		if _, err := io.WriteString(in, enqueueSQL); err != nil {
			return fmt.Errorf("psql: %w", err)
		}
		if !answers.Scan() {
			return fmt.Errorf("psql has ended: %w", cmp.Or(answers.Err(), io.EOF))
		}
		if answers.Text() != "enqueued" {
			return fmt.Errorf("psql answered %q, want enqueued", answers.Text())
		}
		return nil
	}
	return enqueue, func() { _ = in.Close(); _ = psql.Wait() }, nil
}

func sinceMs(p payload) float64 { return float64(time.Now().UnixNano()-p.At) / 1e6 }

// pickupHalf measures the same latency at half of the contender's sustained rate, which it measures
// first.
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
	err = b.offer(ctx, full/2, s.warm)
	on.Store(true)
	if err == nil {
		err = b.offer(ctx, full/2, s.clean)
	}
	mu.Lock()
	defer mu.Unlock()
	r.Value, r.P99, r.Count = median(waits), quantile(waits, 0.99), len(waits)
	r.Said = fmt.Sprintf("%.0f jobs/s offered", full/2)
	return r, err
}

// offer enqueues at a rate for the duration d, in calls every 5 ms.
func (b *bed) offer(ctx context.Context, perSecond float64, d time.Duration) error {
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
