package pawlkafka

import (
	"context"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/transport/internal/adapter"
)

// Ack notes that the database holds the outcome of deliveries. It sends nothing. Once all records
// before it are settled, the offset is committed within 100 ms, at a revoke, or in Finish.
//
// If the partition was revoked or lost, the receipt commits nothing. The next owner receives the
// record again, and the database absorbs it. Stats.LostHandles counts such receipts; they are no
// error. Ack refuses invalid receipts and those of other sources with an error, but applies the
// rest.
func (s *Source) Ack(ctx context.Context, rs ...pawl.Receipt) error {
	const op = "kafka.ack"
	held, refused := adapter.Receipts(op, rs, s.owns)
	done, err := s.settle(ctx, op, held, func(p *partition, at *entry) bool { return p.window.settle(at) })
	if err != nil {
		return err
	}
	s.counters.acked.Add(int64(done))
	s.report.Count(ctx, pawl.EventAcknowledged, op, done)
	return refused
}

func (s *Source) owns(at *entry) bool { return at != nil && at.of.source == s }

// Release returns deliveries to memory; this source hands them out again after the delay. A delay
// of 0 or less means at once. Meanwhile the commit stays before them, and up to ten times
// Config.MaxRecords later records are delivered. If the partition moves, they come at once there.
//
// If the partition was revoked or lost, the delivery belongs to the next owner. Stats.LostHandles
// counts it; it is no error. Release refuses deliveries of other sources with an error, but
// releases the rest.
func (s *Source) Release(ctx context.Context, delay time.Duration, ds ...pawl.Delivery) error {
	const op = "kafka.release"
	held, refused := adapter.Deliveries(op, ds, s.owns)
	now := time.Now()
	due := now.Add(max(delay, 0))
	done, err := s.settle(ctx, op, held, func(p *partition, at *entry) bool { return p.release(at, due, now) })
	if err != nil {
		return err
	}
	s.counters.released.Add(int64(done))
	s.report.Count(ctx, pawl.EventReleased, op, done)
	return refused
}

// settle applies do to each delivery that this source still has out, and returns how many there
// were. It resumes fetching of partitions that have room again.
func (s *Source) settle(ctx context.Context, op string, held []*entry, do func(*partition, *entry) bool) (done int, err error) {
	s.mu.Lock()
	if s.finishing {
		s.mu.Unlock()
		return 0, &pawl.Error{Op: op, Err: errFinished}
	}
	roomy := map[string][]int32{}
	for _, at := range held {
		p := at.of
		before := p.octets
		if p.gone || !do(p, at) {
			continue
		}
		s.octets -= before - p.octets
		done++
		if p.paused && !p.leaving && p.roomy(s.config) {
			p.paused = false
			roomy[p.topic] = append(roomy[p.topic], p.id)
		}
	}
	if len(roomy) > 0 {
		s.client.ResumeFetchPartitions(roomy)
	}
	s.wake()
	s.mu.Unlock()
	lost := len(held) - done
	s.counters.lostHandles.Add(int64(lost))
	s.report.Count(ctx, pawl.EventHandleLost, op, lost)
	return done, nil
}
