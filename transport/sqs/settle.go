package sqs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pawl-go/pawl"
)

// Ack deletes messages whose outcome the database already holds. Their visibility is not extended any more, whatever
// the answer: a message that could not be deleted returns and is absorbed as a duplicate.
//
// Receipts that are not valid, or of another source, are refused with an error; the valid ones beside them are still
// acknowledged, as their outcome is safe. Entries that fail by the service's fault are tried once more. A handle that
// has expired is counted in Stats.LostHandles and is no error. The error names how many messages were left.
func (s *Source) Ack(ctx context.Context, rs ...pawl.Receipt) error {
	var refused int
	held := make([]*arrival, 0, len(rs))
	for _, r := range rs {
		a, ours := r.Handle().(*arrival)
		if !r.Valid() || !ours {
			refused++
			continue
		}
		held = append(held, a)
	}
	err := s.delete(ctx, held)
	if refused > 0 {
		err = errors.Join(&pawl.Error{Op: "sqs.ack", Code: pawl.CodeArgumentInvalid,
			Err:  fmt.Errorf("%d of %d receipts refused: not from a commit of a delivery of this source", refused, len(rs)),
			Hint: "acknowledge with the receipts that the commit returned"}, err)
	}
	return err
}

func (s *Source) delete(ctx context.Context, held []*arrival) error {
	entries := make([]entry, len(held))
	for i, a := range held {
		entries[i].receipt = a.receipt
	}
	s.heart.letGo(held) // an extension still in flight does no harm: the message is deleted all the same
	var left failures
	for _, o := range twice(ctx, entries, s.deleteMessages) {
		switch {
		case o.err == nil:
			s.counters.acked.Add(1)
		case o.dead:
			s.counters.lostHandles.Add(1)
		default:
			s.counters.ackFailures.Add(1)
			left.add(o.err)
		}
	}
	return left.report("sqs.ack", s.url, "deleted", len(held),
		"nothing to do: they return after their visibility timeout and are absorbed as duplicates")
}

// Release gives deliveries back. They become visible after delay, rounded up to whole seconds and cut to what is left
// of twelve hours since their receive; 0 and less mean at once. A delivery whose handle is dead is visible already or
// belongs to another receiver: it is counted in Stats.LostHandles and is no error. Deliveries of another source are
// refused with an error, the others beside them are released.
func (s *Source) Release(ctx context.Context, delay time.Duration, ds ...pawl.Delivery) error {
	var refused int
	held := make([]*arrival, 0, len(ds))
	for _, d := range ds {
		if a, ours := d.Handle.(*arrival); ours && a != nil {
			held = append(held, a)
		} else {
			refused++
		}
	}
	if landed := s.heart.letGo(held); landed != nil {
		select { // an extension still in flight would overrule the delay
		case <-landed:
		case <-ctx.Done():
		}
	}
	now := time.Now()
	entries := make([]entry, len(held))
	for i, a := range held {
		entries[i] = entry{receipt: a.receipt, seconds: min(wholeSeconds(delay), secondsLeft(a.polled, now))}
	}
	err := s.release(ctx, entries)
	if refused > 0 {
		err = errors.Join(badArgument("sqs.release", "%d of %d deliveries are not of this source", refused, len(ds)), err)
	}
	return err
}

func (s *Source) release(ctx context.Context, entries []entry) error {
	var left failures
	for _, o := range twice(ctx, entries, s.changeVisibility) {
		switch {
		case o.err == nil:
			s.counters.released.Add(1)
		case o.dead:
			s.counters.lostHandles.Add(1)
		default:
			left.add(o.err)
		}
	}
	return left.report("sqs.release", s.url, "released", len(entries),
		"nothing to do: they return after their visibility timeout")
}

// secondsLeft is how many whole seconds of the twelve hours a message may stay invisible from now on.
func secondsLeft(polled, now time.Time) int32 {
	return int32(max(MaxVisibility-now.Sub(polled), 0) / time.Second)
}

// failures collects what is left of a batch: how many, and the first reason.
type failures struct {
	count int
	first error
}

func (f *failures) add(err error) {
	if f.count++; f.first == nil {
		f.first = err
	}
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
