package pawlsqs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/callback"
	"github.com/pawl-go/pawl/transport/internal/adapter"
)

// Ack deletes messages whose outcome the database already holds. It ends the extension of their
// visibility in any case: a message that could not be deleted returns and is absorbed as a
// duplicate.
//
// Receipts that are invalid or of another source are refused with an error; the valid ones in the
// same call are acknowledged. Entries that fail by a fault of the service are tried once more. An
// expired handle is counted in Stats.LostHandles and is no error. The error names the number of
// messages not deleted.
func (s *Source) Ack(ctx context.Context, rs ...pawl.Receipt) error {
	held, refused := ackable(rs)
	return errors.Join(refused, s.delete(ctx, held))
}

// ackable returns the handles of this package's valid receipts, and an error about the others.
func ackable(rs []pawl.Receipt) ([]*arrival, error) {
	return adapter.Receipts("sqs.ack", rs, func(a *arrival) bool { return a != nil })
}

// releasable returns the handles of this package's deliveries, and an error about the others.
func releasable(ds []pawl.Delivery) ([]*arrival, error) {
	return adapter.Deliveries("sqs.release", ds, func(a *arrival) bool { return a != nil })
}

func (s *Source) delete(ctx context.Context, held []*arrival) error {
	s.letGo(held) // an extension in flight is harmless: the delete works all the same
	acked, dead, left := tally(twice(ctx, held, s.deleteMessages))
	s.counters.acked.Add(int64(acked))
	s.counters.ackFailures.Add(int64(left.count))
	s.report.Count(ctx, pawl.EventAcknowledged, "sqs.ack", acked)
	s.lost(ctx, "sqs.ack", dead)
	return left.report("sqs.ack", s.url, "deleted", len(held),
		"nothing to do: they return after their visibility timeout and are absorbed as duplicates")
}

// Release makes deliveries visible again after delay, rounded up to whole seconds and cut to the
// rest of twelve hours since their receive. 0 and less mean at once; [KeepTimeout] means the rest
// of the visibility timeout. [Config.ReleaseDelay] may overrule delay. If it panics, delay applies
// and the error holds the panic. If a handle has expired, its message is visible already or held by
// another receiver; that counts in Stats.LostHandles and is no error. Deliveries of another source
// are refused with an error; the others in the same call are released.
//
// On a FIFO queue, release a delivery together with those behind it in its group, in one call. SQS
// hands out none of them before it, because it stays in flight until its delay has passed and
// blocks its group.
func (s *Source) Release(ctx context.Context, delay time.Duration, ds ...pawl.Delivery) error {
	held, refused := releasable(ds)
	delays := make(map[*arrival]time.Duration, len(held))
	for _, d := range ds {
		if a, ours := d.Handle.(*arrival); ours {
			own, fault := callback.Get("Config.ReleaseDelay", func() time.Duration { return s.config.ReleaseDelay(delay, d) })
			if fault != nil {
				own, refused = delay, errors.Join(refused, wrap("sqs.release", s.url, fault))
			}
			delays[a] = own
		}
	}
	return errors.Join(refused, s.release(ctx, held, func(a *arrival) time.Duration { return delays[a] }))
}

func (s *Source) release(ctx context.Context, held []*arrival, delay func(*arrival) time.Duration) error {
	if stored := s.letGo(held); stored != nil {
		select { // a later extension would overrule the delay
		case <-stored:
		case <-ctx.Done():
		}
	}
	now := time.Now()
	changes := make([]change, 0, len(held))
	for _, a := range held {
		if d := delay(a); d != KeepTimeout {
			changes = append(changes, change{receipt: a.receipt, seconds: min(wholeSeconds(d), secondsLeft(a.polled, now))})
		}
	}
	released, dead, left := tally(twice(ctx, changes, s.changeVisibility))
	s.counters.released.Add(int64(released))
	s.report.Count(ctx, pawl.EventReleased, "sqs.release", released)
	s.lost(ctx, "sqs.release", dead)
	return left.report("sqs.release", s.url, "released", len(changes),
		"nothing to do: they return after their visibility timeout")
}

// secondsLeft is the rest of the twelve hours since the poll, in whole seconds.
func secondsLeft(polled, now time.Time) int32 {
	return int32(max(maxVisibility-now.Sub(polled), 0) / time.Second)
}

// failures collects the entries of a batch that failed: their number and the first error.
type failures struct {
	count int
	first error
}

// tally counts the entries that succeeded, those with dead handles, and the others.
func tally(results []entryResult) (done, dead int, left failures) {
	for _, o := range results {
		switch {
		case o.err == nil:
			done++
		case o.dead:
			dead++
		default:
			left.count++
			left.first = cmp.Or(left.first, o.err)
		}
	}
	return done, dead, left
}

func (f *failures) report(op, queue, done string, all int, hint string) error {
	if f.count == 0 {
		return nil
	}
	if err, ok := wrap(op, queue, f.first).(*pawl.Error); ok && err.Hint != "" {
		hint = err.Hint
		f.first = err.Err
	}
	return &pawl.Error{Op: op, Err: fmt.Errorf("%d of %d messages not %s: %w", f.count, all, done, f.first), Hint: hint}
}
