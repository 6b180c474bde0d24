//go:build proof

package pawlrabbitmq

import (
	"context"
	"time"

	"github.com/pawl-go/pawl"
)

// Each mutant breaks one rule of a [Source], to show that the tests notice it.

// A TagOnly source acknowledges tags of an ended session on the current one.
type TagOnly struct{ *Source }

// StillHeld always returns true.
func (m TagOnly) StillHeld(pawl.Delivery) bool { return true }

// Ack acknowledges by the tag.
func (m TagOnly) Ack(ctx context.Context, rs ...pawl.Receipt) error {
	var rest []pawl.Receipt
	for _, r := range rs {
		h, ours := r.Handle().(*handle)
		if !ours || !r.Valid() {
			rest = append(rest, r)
			continue
		}
		m.mu.Lock()
		now, gone := m.now, h.session.gone
		m.mu.Unlock()
		if !gone || now == nil {
			rest = append(rest, r)
			continue
		}
		if err := now.ch.Ack(h.tag, false); err != nil {
			return err
		}
	}
	if len(rest) == 0 {
		return nil
	}
	return m.Source.Ack(ctx, rest...)
}

// A CancelFirst source ends its consumer when it stops, before deliveries are settled.
type CancelFirst struct{ *Source }

// Receive cancels the consumer when ctx has ended.
func (m CancelFirst) Receive(ctx context.Context, max int) ([]pawl.Delivery, error) {
	if ctx.Err() == nil {
		return m.Source.Receive(ctx, max)
	}
	m.mu.Lock()
	one := m.now
	m.mu.Unlock()
	if one != nil {
		_ = one.ch.Cancel(one.tag, false)
		m.mu.Lock()
		var tags []uint64
		for _, a := range one.arrivals {
			if a.state == ready {
				a.state = settled
				tags = append(tags, a.tag)
			}
		}
		m.forgetSettled(one)
		m.mu.Unlock()
		for _, tag := range tags {
			_ = one.ch.Nack(tag, false, true)
		}
		time.Sleep(10 * time.Millisecond)
	}
	return m.Source.Receive(ctx, max)
}

// An AckAll source acknowledges everything up to the highest tag.
type AckAll struct{ *Source }

// Ack acknowledges too much.
func (m AckAll) Ack(_ context.Context, rs ...pawl.Receipt) error {
	for _, r := range rs {
		if h, ours := r.Handle().(*handle); ours && r.Valid() {
			if err := h.session.ch.Ack(h.tag, true); err != nil {
				return err
			}
		}
	}
	return nil
}
