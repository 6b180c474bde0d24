package main

import (
	"bytes"
	"context"
	crand "crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/job"
)

const (
	stampOctets   = 8  // of each payload: the job's due time, in nanoseconds
	octetCallers  = 16 // each enqueues one job per call
	octetsBetween = 64 // bounds the jobs between callers and handlers while the rate is measured
)

// An octetLoad enqueues jobs with payloads of one size and works on them at the same time.
type octetLoad struct {
	bed    *bed
	octets int
	filler []byte // random, so that TOAST cannot compress it

	enqueued, ended, torn atomic.Int64
	between               chan struct{} // holds a value for each job between callers and handlers
	mu                    sync.Mutex
	on                    bool
	waits                 []float64 // ms
}

func (l *octetLoad) enqueue(ctx context.Context, due time.Time) error {
	body := bytes.Clone(l.filler)
	binary.LittleEndian.PutUint64(body, uint64(due.UnixNano()))
	_, err := job.Enqueue(ctx, l.bed.pool, job.Request{Queue: queue, Kind: kind, Payload: body})
	if err == nil {
		l.enqueued.Add(1)
	}
	return err
}

// handle records the job's latency and whether its payload is unaltered.
func (l *octetLoad) handle(_ context.Context, t job.Task[[]byte]) error {
	if len(t.Value) != l.octets || !bytes.Equal(t.Value[stampOctets:], l.filler[stampOctets:]) {
		l.torn.Add(1)
		return nil
	}
	wait := float64(time.Now().UnixNano()-int64(binary.LittleEndian.Uint64(t.Value))) / 1e6
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.on {
		l.waits = append(l.waits, wait)
	}
	return nil
}

func (l *octetLoad) time(on bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.on = on
}

// work starts the worker in this process.
func (l *octetLoad) work(ctx context.Context) (stop func() error, err error) {
	worker, err := job.NewWorker(l.bed.pool, job.Config{
		Queues:   []job.Queue{{Name: queue, Concurrency: 2 * octetsBetween}},
		Handlers: []job.Handler{job.Handle(kind, l.handle)},
		Hooks: pawl.Hooks{OnEvent: func(_ context.Context, e pawl.Event) {
			switch e.Kind {
			case pawl.EventSucceeded:
				n := max(1, e.Count)
				l.ended.Add(int64(n))
				for range n {
					select {
					case <-l.between:
					default: // at half load no values are added
					}
				}
			case pawl.EventWoken, pawl.EventPolled:
			default:
				slog.Warn("octets", "event", fmt.Sprintf("%s %s: %v", e.Kind, e.Op, e.Err))
			}
		}},
	})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- worker.Run(ctx) }()
	return sync.OnceValue(func() error { cancel(); return <-ended }), nil
}

// callers run call concurrently and repeatedly until the time is up or one fails.
func (l *octetLoad) callers(ctx context.Context, d time.Duration, call func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	var all sync.WaitGroup
	errs := make([]error, octetCallers)
	for i := range errs {
		all.Go(func() {
			for ctx.Err() == nil && errs[i] == nil {
				errs[i] = call(ctx)
			}
			cancel()
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// flatOut enqueues as fast as the jobs are worked on.
func (l *octetLoad) flatOut(ctx context.Context, d time.Duration) error {
	return l.callers(ctx, d, func(timed context.Context) error {
		select {
		case l.between <- struct{}{}:
			return l.enqueue(ctx, time.Now())
		case <-timed.Done():
			return nil
		}
	})
}

// offer enqueues at a rate. If no caller is free when a job is due, its latency still counts from
// then.
func (l *octetLoad) offer(ctx context.Context, perSecond float64, d time.Duration) error {
	var next atomic.Int64
	start := time.Now()
	return l.callers(ctx, d, func(timed context.Context) error {
		due := start.Add(time.Duration(float64(next.Add(1)) / perSecond * float64(time.Second)))
		select {
		case <-time.After(time.Until(due)):
			return l.enqueue(ctx, due)
		case <-timed.Done():
			return nil
		}
	})
}

// settle waits until all enqueued jobs are done and checks the database.
func (l *octetLoad) settle(ctx context.Context) error {
	for start := time.Now(); l.ended.Load() < l.enqueued.Load() && time.Since(start) < 30*time.Second; {
		time.Sleep(10 * time.Millisecond)
	}
	left, err := l.bed.waiting(ctx)
	if err == nil && (left > 0 || l.torn.Load() > 0 || l.ended.Load() != l.enqueued.Load()) {
		err = fmt.Errorf("%d jobs were enqueued, %d ended, %d with another payload; %d are left", l.enqueued.Load(), l.ended.Load(), l.torn.Load(), left)
	}
	return err
}

// octetRun measures jobs with payloads of one size. It measures how many a second pass through one
// process that enqueues and works (Value). If half, it measures the time from a job's due time to
// its handler at half of that rate.
func octetRun(octets int, half bool) measure {
	return func(ctx context.Context, b *bed, s scale) (r Round, err error) {
		l := &octetLoad{bed: b, octets: octets, filler: make([]byte, octets), between: make(chan struct{}, octetsBetween)}
		_, _ = crand.Read(l.filler) // never fails
		if err := b.ready(ctx); err != nil {
			return r, err
		}
		stop, err := l.work(ctx)
		if err != nil {
			return r, err
		}
		defer stop()
		if err := l.flatOut(ctx, s.warm); err != nil {
			return r, err
		}
		m, err := b.host.meter(ctx)
		if err != nil {
			return r, err
		}
		before, start := l.ended.Load(), time.Now()
		if err := l.flatOut(ctx, rateTime(s)); err != nil {
			return r, err
		}
		n := l.ended.Load() - before
		if n == 0 {
			return r, errNothingDone
		}
		r.Value = float64(n) / time.Since(start).Seconds()
		if half {
			err = l.timeHalf(ctx, &r, s)
		} else {
			err = m.charge(ctx, &r, int(n))
		}
		if err != nil {
			return r, err
		}
		if err := l.settle(ctx); err != nil {
			return r, err
		}
		return r, stop()
	}
}

// timeHalf replaces the rate of a round by the latencies at half of it.
func (l *octetLoad) timeHalf(ctx context.Context, r *Round, s scale) error {
	perSecond := r.Value / 2
	if err := l.offer(ctx, perSecond, s.warm); err != nil {
		return err
	}
	l.time(true)
	err := l.offer(ctx, perSecond, s.clean)
	l.time(false)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil && len(l.waits) == 0 {
		err = errNothingDone
	}
	r.Value, r.P99, r.Count = median(l.waits), quantile(l.waits, 0.99), len(l.waits)
	r.Said = fmt.Sprintf("%.0f jobs/s offered", perSecond)
	return err
}

func (g growthSizes) octetPlans() []plan {
	const label = "octets of payload"
	return []plan{
		growthRow(Row{ID: "growth-octets", Title: "Jobs enqueued one a call by 16 callers and worked off at the same time, one process", Unit: perSec, XLabel: label}, growthRounds, g.octets,
			func(n int) entry {
				return entry{grown(n, "octets", "Handle of []byte, random octets; at most 64 jobs between callers and handlers"), pawlSystem, octetRun(n, false)}
			}),
		growthRow(Row{ID: "growth-octets-wait", Title: "The same at half of that rate: from due to handler", Unit: ms, Less: true, XLabel: label}, waitRounds, g.octets,
			func(n int) entry {
				return entry{grown(n, "octets", "enqueue and pickup"), pawlSystem, octetRun(n, true)}
			}),
	}
}
