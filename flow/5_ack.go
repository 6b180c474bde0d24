package flow

import (
	"context"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/fault"
)

const (
	ackBatch       = 10                    // SQS's largest batch
	ackLinger      = 20 * time.Millisecond // how long the first receipt waits for company
	sourcePatience = 10 * time.Second      // for one call of the source beside Receive
)

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
