package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/consumer"
)

// randomKey returns a UUID, the usual key of messages and callers.
func randomKey() string {
	a, b := rand.Uint64(), rand.Uint64()
	return fmt.Sprintf("%08x-%04x-4%03x-%04x-%012x", a>>32, a>>16&0xffff, a&0xfff, b>>50|0x8000, b&0xffffffffffff)
}

// A paced source is an endless one until it gets a rate. It records how long after its due time
// each message was acknowledged.
type paced struct {
	endless
	mu    sync.Mutex
	rate  float64 // messages a second; 0: as fast as possible
	since time.Time
	sent  int
	on    bool
	waits []float64 // ms
}

// Info asks for immediate acknowledgements, because their time is measured.
func (s *paced) Info() pawl.SourceInfo { return pawl.SourceInfo{AckAtOnce: true} }

func (s *paced) Receive(ctx context.Context, limit int) ([]pawl.Delivery, error) {
	for {
		if dues := s.due(limit); len(dues) > 0 {
			batch, err := s.endless.Receive(ctx, len(dues))
			for i := range batch {
				batch[i].Handle = dues[i]
			}
			return batch, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(time.Millisecond):
		}
	}
}

// due returns the due times of the messages that are due and not received yet.
func (s *paced) due(limit int) (at []time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(at) < limit {
		next := time.Now()
		if s.rate > 0 {
			next = s.since.Add(time.Duration(float64(s.sent) / s.rate * float64(time.Second)))
		}
		if next.After(time.Now()) {
			break
		}
		s.sent++
		at = append(at, next)
	}
	return at
}

func (s *paced) Ack(ctx context.Context, rs ...pawl.Receipt) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range rs {
		if s.on {
			s.waits = append(s.waits, float64(time.Since(r.Handle().(time.Time)).Microseconds())/1000)
		}
	}
	return s.endless.Ack(ctx, rs...)
}

func (s *paced) pace(perSecond float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rate, s.since, s.sent = perSecond, time.Now(), 0
}

// timed returns the latencies of the messages acknowledged during d.
func (s *paced) timed(d time.Duration) []float64 {
	set := func(on bool) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.on = on
	}
	set(true)
	time.Sleep(d)
	set(false)
	return s.waits
}

// inboxWait measures the time from a message's due time to its acknowledgement, at half load,
// beside seen earlier deliveries.
func inboxWait(config consumer.Config, load *halfLoad, seen int64) measure {
	return func(ctx context.Context, b *bed, s scale) (r Round, err error) {
		source := &paced{endless: endless{key: randomKey}}
		stop, err := b.consume(ctx, config, source, &source.acked)
		if err != nil {
			return r, err
		}
		defer stop()
		half, err := load.of(func() (float64, error) { return rate(&source.acked, rateTime(s)), nil })
		if err != nil {
			return r, err
		}
		source.pace(half)
		time.Sleep(s.warm)
		waits := source.timed(s.clean)
		if err := stop(); err != nil {
			return r, err
		}
		if len(waits) == 0 {
			return r, errNothingDone
		}
		r.Value, r.P99, r.Count = median(waits), quantile(waits, 0.99), len(waits)
		r.Said = fmt.Sprintf("%.0f messages/s offered", half)
		return r, b.wantSeen(ctx, seen, source.acked.Load())
	}
}

// commandsBeside measures commands with new keys beside earlier commands.
func commandsBeside(before int) measure {
	return func(ctx context.Context, b *bed, s scale) (Round, error) {
		r, err := commands(once, nothing, randomKey, "p", nil)(ctx, b, s)
		if err != nil {
			return r, err
		}
		var all, effects int
		err = b.pool.QueryRow(ctx, "select (select count(*) from pawl.command where status = 'succeeded'), (select count(*) from effect)").Scan(&all, &effects)
		if err == nil && (all-before != effects || effects < r.Count) {
			err = fmt.Errorf("%d commands were called, %d remembered beside %d before, %d effects", r.Count, all-before, before, effects)
		}
		return r, err
	}
}

func (g growthSizes) keyPlans() []plan {
	const label = "remembered keys"
	one := consumer.Config{Concurrency: inFlight, Handler: consumer.HandleTx(applyOne)}
	load := &halfLoad{}
	return []plan{
		growthRow(Row{ID: "growth-keys", Title: "Messages that write one row, beside remembered keys", Unit: messagesPerSec, XLabel: label}, growthRounds, g.keys,
			func(n int) entry {
				return entry{grown(n, "keys", "consumer, HandleTx, 32 in flight; pawl.inbox "+fillHow), fillInbox.of(n), inboxBeside(one, randomKey, int64(n))}
			}),
		growthRow(Row{ID: "growth-keys-wait", Title: "A message from due to acknowledged, at half of the rate of the first line, beside remembered keys", Unit: ms, Less: true, XLabel: label}, waitRounds, g.keys,
			func(n int) entry {
				return entry{grown(n, "keys", "consumer, HandleTx, 32 in flight"), fillInbox.of(n), inboxWait(one, load, int64(n))}
			}),
		growthRow(Row{ID: "growth-commands", Title: "Commands that write one row, each key new, 16 callers, beside remembered commands", Unit: commandsPerSec, XLabel: "remembered commands"}, growthRounds, g.keys,
			func(n int) entry {
				return entry{grown(n, "commands", "Once; pawl.command "+fillHow), fillCommand.of(n), commandsBeside(n)}
			}),
	}
}
