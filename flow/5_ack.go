package flow

import (
	"context"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/fault"
	"github.com/pawl-go/pawl/internal/receipt"
	"github.com/pawl-go/pawl/internal/txn"
)

const (
	ackBatch       = 10                    // SQS's largest batch
	ackLinger      = 20 * time.Millisecond // how long the first receipt waits for company
	sourcePatience = 10 * time.Second      // for one call of the source beside Receive
)

// An unproved delivery is one whose outcome was only read.
type unproved struct {
	delivery pawl.Delivery
	receipt  pawl.Receipt
}

// maxUnproved is how many may wait for proof without holding their handlers' goroutines.
const maxUnproved = 1000

// proveAll passes on the receipts of what was only read, once everything before it is replicated: all that wait, by one commit. It ends
// when all was handled and nothing waits. What cannot be proved goes back to the source.
//
// prove: a crash before it costs one more absorbed duplicate.
func (f *Flow) proveAll(ctx context.Context, handled <-chan struct{}) {
	for {
		select {
		case first := <-f.unproved:
			f.prove(ctx, first)
		case <-handled:
			for len(f.unproved) > 0 {
				f.prove(ctx, <-f.unproved)
			}
			return
		}
	}
}

func (f *Flow) prove(ctx context.Context, first unproved) {
	all := append(make([]unproved, 0, 1+len(f.unproved)), first)
	for range len(f.unproved) {
		all = append(all, <-f.unproved)
	}
	if err := txn.Replicated(ctx, f.pool); err != nil {
		f.away.Store(true)
		f.emit(ctx, pawl.Event{Kind: pawl.EventTrouble, Op: "flow.prove", Count: len(all), Err: err})
		ds := make([]pawl.Delivery, len(all))
		for i, u := range all {
			ds[i] = u.delivery
		}
		f.giveBack(ctx, jittered(2*time.Second), ds...)
		return
	}
	for _, u := range all {
		f.acks <- receipt.Proved(u.receipt)
	}
}

// ackAll acknowledges receipts in small batches until stopped, then what is left.
//
// ack: a crash before it costs one absorbed duplicate.
func (f *Flow) ackAll(ctx context.Context, stopped <-chan struct{}) {
	for {
		select {
		case first := <-f.acks:
			f.ack(ctx, f.gather(first))
		case <-stopped:
			for {
				select {
				case first := <-f.acks:
					f.ack(ctx, f.gather(first))
				default:
					return
				}
			}
		}
	}
}

// gather collects the receipts that arrive within the linger, up to a batch; if somebody waits for them, those that are there.
func (f *Flow) gather(first pawl.Receipt) []pawl.Receipt {
	batch := append(make([]pawl.Receipt, 0, ackBatch), first)
	linger := time.After(ackLinger)
	if _, atOnce := f.cfg.Source.(pawl.AckAtOnce); atOnce {
		linger = over
	}
	for len(batch) < ackBatch {
		select {
		case r := <-f.acks:
			batch = append(batch, r)
			continue
		default:
		}
		select {
		case r := <-f.acks:
			batch = append(batch, r)
		case <-linger:
			return batch
		}
	}
	return batch
}

// over is a linger that has ended.
var over = func() <-chan time.Time {
	ended := make(chan time.Time)
	close(ended)
	return ended
}()

// ack tells the source. A failure is counted, not retried as work: the message comes again and is absorbed.
func (f *Flow) ack(ctx context.Context, batch []pawl.Receipt) {
	ctx, cancel := context.WithTimeout(ctx, sourcePatience)
	defer cancel()
	err := fault.At("flow.ack.before")
	if err == nil {
		err = f.cfg.Source.Ack(ctx, batch...)
	}
	if err != nil {
		f.emit(ctx, pawl.Event{Kind: pawl.EventAckFailed, Op: "flow.ack", Count: len(batch), Err: err})
	}
}
