package pawlkafka

import (
	"context"
	"fmt"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/transport/internal/adapter"
)

// Ack notes that the database holds the outcome of deliveries. It sends nothing: the offset is committed within 100 ms once all
// records before it are settled, when the partition is revoked, and in Finish.
//
// A receipt for a partition that was revoked or lost since commits nothing: its record is the next owner's, comes again there and is
// absorbed. It is counted in Stats.LostHandles and is no error. Receipts that are not valid, or of another source, are refused with an error;
// the valid ones beside them count.
func (s *Source) Ack(ctx context.Context, rs ...pawl.Receipt) error {
	const op = "kafka.ack"
	held := make([]*place, 0, len(rs))
	for _, r := range rs {
		if at, ours := r.Handle().(*place); ours && r.Valid() && at.of.source == s {
			held = append(held, at)
		}
	}
	done, err := s.settle(ctx, op, held, func(p *partition, at *place) bool { return p.window.settle(at) })
	if err != nil {
		return err
	}
	s.counters.acked.Add(int64(done))
	s.report(ctx, pawl.EventAcknowledged, op, done)
	if refused := len(rs) - len(held); refused > 0 {
		return &pawl.Error{Op: op, Code: pawl.CodeArgumentInvalid,
			Err:  fmt.Errorf("%d of %d receipts refused: not from a commit of a delivery of this source", refused, len(rs)),
			Hint: "acknowledge with the receipts that the commit returned"}
	}
	return nil
}

// Release gives deliveries back, in memory: this source hands them out again after the delay, 0 and less mean at once. Meanwhile the
// commit stays before them, while records behind them are delivered, up to ten times Config.MaxRecords. If the partition moves to
// another member, they come there at once.
//
// A delivery of a partition that was revoked or lost since is the next owner's: it is counted in Stats.LostHandles and is no error.
// Deliveries of another source are refused with an error, the others beside them are released.
func (s *Source) Release(ctx context.Context, delay time.Duration, ds ...pawl.Delivery) error {
	const op = "kafka.release"
	held := make([]*place, 0, len(ds))
	for _, d := range ds {
		if at, ours := d.Handle.(*place); ours && at != nil && at.of.source == s {
			held = append(held, at)
		}
	}
	now := time.Now()
	due := now.Add(max(delay, 0))
	done, err := s.settle(ctx, op, held, func(p *partition, at *place) bool { return p.release(at, due, now) })
	if err != nil {
		return err
	}
	s.counters.released.Add(int64(done))
	s.report(ctx, pawl.EventReleased, op, done)
	if refused := len(ds) - len(held); refused > 0 {
		return adapter.BadArgument(op, "%d of %d deliveries are not of this source", refused, len(ds))
	}
	return nil
}

// settle does one thing to each delivery that is still ours and out, and returns how many that were. It fetches again what has room now.
func (s *Source) settle(ctx context.Context, op string, held []*place, do func(*partition, *place) bool) (done int, err error) {
	s.mu.Lock()
	if s.finishing {
		s.mu.Unlock()
		return 0, &pawl.Error{Op: op, Err: errFinished}
	}
	var roomy map[string][]int32
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
			if roomy == nil {
				roomy = map[string][]int32{}
			}
			roomy[p.topic] = append(roomy[p.topic], p.id)
		}
	}
	if roomy != nil {
		s.client.ResumeFetchPartitions(roomy)
	}
	s.wake()
	s.mu.Unlock()
	if lost := len(held) - done; lost > 0 {
		s.counters.lostHandles.Add(int64(lost))
		s.report(ctx, pawl.EventHandleLost, op, lost)
	}
	return done, nil
}

// report emits an event that stands for n deliveries, if there are any.
func (s *Source) report(ctx context.Context, kind pawl.EventKind, op string, n int) {
	if n > 0 {
		s.emit(ctx, pawl.Event{Kind: kind, Op: op, Count: n})
	}
}
