package consumer

import (
	"context"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/callback"
	"github.com/pawl-go/pawl/internal/fault"
	"github.com/pawl-go/pawl/internal/pace"
	"github.com/pawl-go/pawl/internal/receipt"
	"github.com/pawl-go/pawl/internal/txn"
)

const (
	ackLinger      = 20 * time.Millisecond // how long the first receipt waits for company
	sourcePatience = 10 * time.Second      // for one call of the source beside Receive
)

// An outcome is what the steps before have found out about a delivery. The zero outcome gives it back at once.
type outcome struct {
	decided bool          // the database holds it
	lost    bool          // the source has taken it back: it is neither acknowledged nor given back
	readOn  string        // where it was read, if it may not be replicated
	wait    time.Duration // of one that is not decided: given back for
	failure error         // of one of a batch that could not be claimed
}

// acknowledge hands the receipt of a decided delivery on: to the source, or first to be proved.
func (c *Consumer) acknowledge(d pawl.Delivery, o outcome, stopped <-chan struct{}) {
	c.setbacks.Store(0)
	if o.readOn != "" {
		select {
		case c.unproved <- unproved{d, o.readOn}:
		case <-stopped:
		}
		return
	}
	select {
	case c.acks <- receiptOf(d):
	case <-stopped: // Run has returned; the message comes again and is absorbed
	}
}

// receiptOf makes the receipt of a delivery whose outcome the database holds, proved if it was only read.
func receiptOf(d pawl.Delivery) pawl.Receipt { return receipt.Committed[pawl.Receipt](d.Handle) }

// An unproved delivery was found to be known on a server whose standbys may not have that yet.
type unproved struct {
	pawl.Delivery
	readOn string
}

// maxUnproved is how many may wait for proof without holding their handlers' goroutines.
const maxUnproved = 1000

// proveAll passes on the receipts of what was only read, once everything before it is replicated: all that wait, by one commit. It ends
// when all was handled and nothing waits. What cannot be proved goes back to the source.
//
// prove: a crash before it costs one more absorbed duplicate.
func (c *Consumer) proveAll(ctx context.Context, handled <-chan struct{}) {
	for {
		select {
		case first := <-c.unproved:
			c.prove(ctx, first)
		case <-handled:
			for len(c.unproved) > 0 {
				c.prove(ctx, <-c.unproved)
			}
			return
		}
	}
}

func (c *Consumer) prove(ctx context.Context, first unproved) {
	all := map[string][]pawl.Delivery{first.readOn: {first.Delivery}}
	for range len(c.unproved) {
		next := <-c.unproved
		all[next.readOn] = append(all[next.readOn], next.Delivery)
	}
	for readOn, deliveries := range all { // of more than one server while a failover goes on
		if err := txn.Replicated(ctx, c.pool, readOn); err != nil {
			c.away.Store(true)
			c.emit(ctx, pawl.Event{Kind: pawl.EventError, Op: "consumer.prove", Count: len(deliveries), Err: err})
			c.giveBack(ctx, pace.Jittered(2*time.Second), deliveries...)
			continue
		}
		for _, d := range deliveries {
			c.acks <- receiptOf(d)
		}
	}
}

// ackAll acknowledges receipts in small batches until stopped, then what is left.
//
// ack: a crash before it costs one absorbed duplicate.
func (c *Consumer) ackAll(ctx context.Context, stopped <-chan struct{}) {
	for {
		select {
		case first := <-c.acks:
			c.ack(ctx, c.gather(first))
		case <-stopped:
			for {
				select {
				case first := <-c.acks:
					c.ack(ctx, c.gather(first))
				default:
					return
				}
			}
		}
	}
}

// gather collects the receipts that arrive within the linger, up to a batch; if a sender waits for them, those that are there.
func (c *Consumer) gather(first pawl.Receipt) []pawl.Receipt {
	batch := append(make([]pawl.Receipt, 0, min(c.info.AckBatch, cap(c.acks)+1)), first)
	linger := time.After(ackLinger)
	if c.info.AckAtOnce {
		linger = over
	}
	for len(batch) < c.info.AckBatch {
		select {
		case r := <-c.acks:
			batch = append(batch, r)
			continue
		default:
		}
		select {
		case r := <-c.acks:
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
func (c *Consumer) ack(ctx context.Context, batch []pawl.Receipt) {
	ctx, cancel := context.WithTimeout(ctx, sourcePatience)
	defer cancel()
	err := fault.At("consumer.ack.before")
	if err == nil {
		err = callback.Do("Source.Ack", func() error { return c.cfg.Source.Ack(ctx, batch...) })
	}
	if err != nil {
		c.emit(ctx, pawl.Event{Kind: pawl.EventAckFailed, Op: "consumer.ack", Count: len(batch), Err: err})
	}
}

// giveBack returns deliveries to the source, unacknowledged, those of one ordering key in one call. If even that fails they come back
// by themselves, later.
func (c *Consumer) giveBack(ctx context.Context, wait time.Duration, ds ...pawl.Delivery) {
	if len(ds) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sourcePatience)
	defer cancel()
	if err := c.release(ctx, wait, ds...); err != nil {
		c.emitOf(ctx, ds[0], pawl.Event{Kind: pawl.EventError, Op: "consumer.release", Count: len(ds), Err: err})
	}
}

// release tells the source, unless it is finished.
func (c *Consumer) release(ctx context.Context, wait time.Duration, ds ...pawl.Delivery) error {
	c.source.RLock()
	defer c.source.RUnlock()
	if c.source.done {
		return nil // of a handler that was left behind: the source gave its deliveries up when it left
	}
	return callback.Do("Source.Release", func() error { return c.cfg.Source.Release(ctx, wait, ds...) })
}
