package pawlnats

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/pace"
	"github.com/pawl-go/pawl/transport/internal/adapter"
)

// maxPartitions bounds the number of open pull requests.
const maxPartitions = 256

// Partitions is a source on several consumers of one stream. Each consumer has MaxAckPending 1 and
// its own part of the subjects. So one message per partition is out at once over all processes, and
// each partition keeps its order. Any number of processes may open all partitions; JetStream
// decides which process gets the next message of a partition.
//
// From the first Receive until a Receive whose context has ended, one goroutine per partition
// requests one message and offers it to Receive. If no Receive takes it within half of AckWait, it
// is released. So a process that waits for its database does not block a partition.
type Partitions struct {
	sources []*Source
	offered chan pawl.Delivery
	failed  chan error

	mu      sync.Mutex
	end     context.CancelFunc // stops the goroutines; nil: none run
	lanes   *sync.WaitGroup
	wanted  chan struct{} // closed and replaced at each Receive
	waiting int           // Receives in progress
}

var (
	_ pawl.Finisher = (*Partitions)(nil)
	_ pawl.Broker   = (*Partitions)(nil)
)

// OpenPartitions finds 1 to 256 consumers of a stream and checks each as [Open] does. It requires
// [Config.OrderingKey]. It does not check that the consumers' filters cover the subjects without
// overlap, which they must.
func OpenPartitions(ctx context.Context, js jetstream.JetStream, stream string, consumers []string, cfg Config) (*Partitions, error) {
	const op = "nats.open"
	switch n := len(consumers); {
	case n < 1 || n > maxPartitions:
		return nil, adapter.BadArgument(op, "there are %d consumers, allowed are 1 to %d", n, maxPartitions)
	case len(slices.Compact(slices.Sorted(slices.Values(consumers)))) != n:
		return nil, adapter.BadArgument(op, "a consumer is named twice")
	case cfg.OrderingKey == nil:
		return nil, adapter.BadArgument(op, "OrderingKey is missing: without an order, use Open with one consumer")
	}
	p := &Partitions{offered: make(chan pawl.Delivery), failed: make(chan error), wanted: make(chan struct{})}
	for _, name := range consumers {
		s, err := Open(ctx, js, stream, name, cfg)
		if err != nil {
			return nil, err
		}
		p.sources = append(p.sources, s)
	}
	return p, nil
}

// Broker returns "nats" and the stream's name, for traces.
func (p *Partitions) Broker() (system, destination string) { return p.sources[0].Broker() }

// Info returns the Info of a [Source], with the longest horizon of the partitions.
func (p *Partitions) Info() pawl.SourceInfo {
	i := p.sources[0].Info()
	for _, s := range p.sources[1:] {
		i.RedeliveryHorizon = max(i.RedeliveryHorizon, s.Info().RedeliveryHorizon)
	}
	i.ReceiveBatch = min(len(p.sources), p.sources[0].config.Batch)
	return i
}

// Stats returns the sum over the partitions.
func (p *Partitions) Stats() (sum Stats) {
	for _, s := range p.sources {
		sum = sum.plus(s.Stats())
	}
	return sum
}

// Backlog returns the sum over the partitions.
func (p *Partitions) Backlog(ctx context.Context) (sum Backlog, err error) {
	for _, s := range p.sources {
		b, err := s.Backlog(ctx)
		if err != nil {
			return Backlog{}, err
		}
		sum = Backlog{sum.Pending + b.Pending, sum.AckPending + b.AckPending, sum.Redelivered + b.Redelivered}
	}
	return sum, nil
}

// Receive waits at most Config.Wait for the first message and returns at most max deliveries, at
// most one per partition. After ctx ends, it cancels the pull requests of all partitions, releases
// messages that already arrived, and returns the context's error.
func (p *Partitions) Receive(ctx context.Context, max int) (ds []pawl.Delivery, err error) {
	const op = "nats.receive"
	if max < 1 {
		return nil, adapter.BadArgument(op, "max is %d, must be at least 1", max)
	}
	if p.sources[0].finished.Load() {
		return nil, &pawl.Error{Op: op, Err: errFinished}
	}
	if err := ctx.Err(); err != nil {
		p.stop()
		return nil, &pawl.Error{Op: op, Err: err}
	}
	p.start(ctx)
	defer p.leave()
	timer := time.NewTimer(p.sources[0].config.Wait)
	defer timer.Stop()
	for len(ds) < max {
		select {
		case d := <-p.offered:
			ds = append(ds, d)
			timer.Reset(0) // take other offered deliveries too, without waiting
			continue
		default:
		}
		select {
		case d := <-p.offered:
			ds = append(ds, d)
			timer.Reset(0)
		case err := <-p.failed:
			if len(ds) > 0 {
				return ds, nil
			}
			return nil, err
		case <-timer.C:
			return ds, nil
		case <-ctx.Done():
			p.stop()
			return nil, &pawl.Error{Op: op, Err: errors.Join(ctx.Err(), p.Release(context.WithoutCancel(ctx), 0, ds...))}
		}
	}
	return ds, nil
}

// start tells the goroutines that a Receive waits, and starts them at the first call.
func (p *Partitions) start(ctx context.Context) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiting++
	close(p.wanted)
	p.wanted = make(chan struct{})
	if p.end != nil {
		return
	}
	ctx, p.end = context.WithCancel(context.WithoutCancel(ctx))
	p.lanes = &sync.WaitGroup{}
	for _, s := range p.sources {
		p.lanes.Go(func() { p.serve(ctx, s) })
	}
}

func (p *Partitions) leave() {
	p.mu.Lock()
	p.waiting--
	p.mu.Unlock()
}

// stop ends the goroutines and waits for them. Each releases its message.
func (p *Partitions) stop() {
	p.mu.Lock()
	end, lanes := p.end, p.lanes
	p.end = nil
	p.mu.Unlock()
	if end != nil {
		end()
		lanes.Wait()
	}
}

// serve requests one message after another of a partition, and offers each, until ctx ends.
func (p *Partitions) serve(ctx context.Context, s *Source) {
	for ctx.Err() == nil {
		p.awaitWanted(ctx)
		ds, err := s.Receive(ctx, 1)
		for _, d := range ds {
			p.offer(ctx, s, d)
		}
		if err != nil && ctx.Err() == nil {
			select {
			case p.failed <- err:
			case <-time.After(time.Second): // no Receive waits, or another error was returned
			case <-ctx.Done():
			}
			pace.Sleep(ctx, pace.Jittered(250*time.Millisecond))
		}
	}
}

// offer passes a delivery to a Receive, or releases it.
func (p *Partitions) offer(ctx context.Context, s *Source, d pawl.Delivery) {
	timer := time.NewTimer(s.binder.now.Load().ackWait / 2)
	defer timer.Stop()
	select {
	case p.offered <- d:
		return
	case <-timer.C:
	case <-ctx.Done():
	}
	giving, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	if err := s.Release(giving, 0, d); err != nil {
		s.report.Emit(giving, pawl.Event{Kind: pawl.EventError, Op: "nats.release", Err: err})
	}
}

// awaitWanted waits until a Receive is in progress.
func (p *Partitions) awaitWanted(ctx context.Context) {
	p.mu.Lock()
	wanted, waiting := p.wanted, p.waiting
	p.mu.Unlock()
	if waiting > 0 {
		return
	}
	select {
	case <-wanted:
	case <-ctx.Done():
	}
}

// Ack acknowledges like [Source.Ack], each message at its own consumer.
func (p *Partitions) Ack(ctx context.Context, rs ...pawl.Receipt) error {
	held, refused := ackable(rs, p.sources...)
	errs := []error{refused}
	for s, as := range byOwner(held) {
		errs = append(errs, s.ack(ctx, as))
	}
	return errors.Join(errs...)
}

// Release releases like [Source.Release], each message to its own consumer.
func (p *Partitions) Release(ctx context.Context, delay time.Duration, ds ...pawl.Delivery) error {
	held, refused := releasable(ds, p.sources...)
	errs := []error{refused}
	for s, as := range byOwner(held) {
		errs = append(errs, s.release(ctx, delay, as))
	}
	return errors.Join(errs...)
}

func byOwner(as []*arrival) map[*Source][]*arrival {
	return adapter.By(as, func(a *arrival) *Source { return a.owner })
}

// Finish ends all partitions; see [Source.Finish].
func (p *Partitions) Finish(ctx context.Context) error {
	p.stop()
	for _, s := range p.sources[1:] {
		s.finished.Store(true)
		s.letGoAll()
	}
	return p.sources[0].Finish(ctx) // flushes the shared connection
}
