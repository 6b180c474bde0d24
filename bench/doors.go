package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/consumer"
	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/schedule"
)

// A counter is a source that delivers one message for each value in sent.
type counter struct {
	sent chan struct{}
	n    int
}

// Receive waits for the next delivery. Its payload contains the time at which it was returned.
func (s *counter) Receive(ctx context.Context, _ int) ([]pawl.Delivery, error) {
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(time.Second):
		return nil, nil
	case <-s.sent:
	}
	s.n++
	key := strconv.Itoa(s.n)
	return []pawl.Delivery{{Key: key, MessageID: key, Payload: fmt.Appendf(nil, `{"at": %d}`, time.Now().UnixNano())}}, nil
}

func (s *counter) Info() pawl.SourceInfo { return pawl.SourceInfo{} }

func (s *counter) Ack(context.Context, ...pawl.Receipt) error { return nil }

func (s *counter) Release(context.Context, time.Duration, ...pawl.Delivery) error { return nil }

// pickupStored measures the time from the source's Receive to the handler, for a consumer that
// stores each delivery first. The transaction that stores it is included.
func pickupStored(handler func(started func(payload)) consumer.Handler) measure {
	return func(ctx context.Context, b *bed, s scale) (r Round, err error) {
		started := make(chan float64, 1)
		source := &counter{sent: make(chan struct{}, 1)}
		c, err := consumer.New(b.pool, consumer.Config{Name: "bench", Source: source, Hooks: quiet,
			Handler: handler(func(p payload) { started <- sinceMs(p) })})
		if err != nil {
			return r, err
		}
		stop := running(ctx, c.Run)
		r, err = pickedUp(ctx, s, func(context.Context) error { source.sent <- struct{}{}; return nil }, started)
		return r, errors.Join(err, stop())
	}
}

// workOn returns a handler that runs without a transaction, so each delivery is stored first.
func workOn(started func(payload)) consumer.Handler {
	return consumer.Handle(func(_ context.Context, a *consumer.Attempt[payload]) error { started(a.Value); return nil })
}

// storeFirst returns a transactional handler in the mode that stores each delivery first.
func storeFirst(started func(payload)) consumer.Handler {
	return consumer.HandleTx(func(_ context.Context, _ pgx.Tx, m consumer.Message[payload]) error { started(m.Value); return nil }).
		With(consumer.TxPolicy{Mode: consumer.StoreFirst})
}

// tickEvery is longer than a worker takes to become idle, and not a multiple of a poll interval.
const tickEvery = 930 * time.Millisecond

// pickupTick measures the time from a tick's due time to its handler. Keeper and worker have their
// default settings.
func pickupTick(ctx context.Context, b *bed, s scale) (r Round, err error) {
	started := make(chan float64, s.pickups+1)
	worker, err := job.NewWorker(b.pool, job.Config{Queues: []job.Queue{{Name: queue}}, Hooks: quiet,
		Handlers: []job.Handler{job.Handle("tick", func(_ context.Context, j job.Task[[]byte]) error {
			if tick, ok := schedule.TickOf(j.Job); ok {
				started <- float64(time.Since(tick.At).Microseconds()) / 1000
			}
			return nil
		})}})
	if err != nil {
		return r, err
	}
	keeper, err := schedule.NewKeeper(b.pool, schedule.Config{Hooks: quiet,
		Schedules: []schedule.Schedule{{Name: "bench", Plan: schedule.Every(tickEvery), Queue: queue, Kind: "tick"}}})
	if err != nil {
		return r, err
	}
	stopWorker, stopKeeper := running(ctx, worker.Run), running(ctx, keeper.Run)
	s.idle = 0
	r, err = pickedUp(ctx, s, func(context.Context) error { return nil }, started)
	return r, errors.Join(err, stopKeeper(), stopWorker())
}

func storedAndScheduledPlan() plan {
	within := func(who string) []Bar {
		return []Bar{{Who: who, Factor: 5, Meaning: "p50 ≤ 5 ms"}, {Who: who, Factor: 20, P99: true, Meaning: "p99 ≤ 20 ms"}}
	}
	return plan{Row: Row{ID: "pickup-doors", Title: "To the handler of a stored delivery, and of a schedule's tick, idle, default settings", Unit: ms, Less: true,
		Bars: slices.Concat(within("Pawl, stored"), within("Pawl, stored, tx"), within("Pawl, schedule"))}, rounds: 1, abreast: true,
		entries: []entry{
			{who("Pawl, stored", "Handle of a consumer, from Receive: the store is included; woken"), pawlSystem, pickupStored(workOn)},
			{who("Pawl, stored, tx", "HandleTx in mode StoreFirst, likewise; woken"), pawlSystem, pickupStored(storeFirst)},
			{who("Pawl, schedule", fmt.Sprintf("a tick every %v: from the moment for which it is due; keeper and worker", tickEvery)), pawlSystem, pickupTick},
		}}
}
