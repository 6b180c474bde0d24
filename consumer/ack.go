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
	ackLinger      = 20 * time.Millisecond // how long the first receipt waits for others
	sourcePatience = 10 * time.Second      // for one call of the source other than Receive
)

// A deliveryResult is the result of the steps for one delivery. The zero deliveryResult releases it
// at once.
type deliveryResult struct {
	decided bool          // the database holds the outcome
	lost    bool          // the source took it back: neither acknowledge nor release
	readOn  string        // where the outcome was read, if it may not be replicated
	wait    time.Duration // delay of the release, if not decided
	failure error         // why this delivery of a batch could not be claimed
	mark    *mark         // for the filter; nil: none
}

// acknowledge passes the receipt to ackAll, or first to confirmAllReplicated if the outcome may not
// be replicated.
func (c *Consumer) acknowledge(d pawl.Delivery, result deliveryResult, stopped <-chan struct{}) {
	c.setbacks.Store(0)
	c.keepMark(result.mark)
	if result.readOn != "" {
		select {
		case c.unreplicated <- unreplicated{d, result.readOn}:
		case <-stopped:
		}
		return
	}
	select {
	case c.acks <- receiptOf(d):
	case <-stopped: // Run has returned; the message comes again and is absorbed
	}
}

// receiptOf makes a receipt. The database must hold the outcome. If the outcome was only read, wait
// until it is replicated first.
func receiptOf(d pawl.Delivery) pawl.Receipt { return receipt.Committed[pawl.Receipt](d.Handle) }

// An unreplicated delivery is a duplicate whose row may not have reached the standbys.
type unreplicated struct {
	pawl.Delivery
	readOn string
}

// maxUnreplicated is how many deliveries may wait for replication without blocking the goroutines
// that handle them.
const maxUnreplicated = 1000

// confirmAllReplicated passes on the receipts of outcomes that were only read, once everything
// before them is replicated. One commit confirms all that wait. It ends when all deliveries are
// handled and none waits. If the wait fails, the deliveries are released to the source.
//
// confirm: a crash before it costs one more absorbed duplicate.
func (c *Consumer) confirmAllReplicated(ctx context.Context, handled <-chan struct{}) {
	for {
		select {
		case first := <-c.unreplicated:
			c.confirmReplicated(ctx, first)
		case <-handled:
			for len(c.unreplicated) > 0 {
				c.confirmReplicated(ctx, <-c.unreplicated)
			}
			return
		}
	}
}

func (c *Consumer) confirmReplicated(ctx context.Context, first unreplicated) {
	all := map[string][]pawl.Delivery{first.readOn: {first.Delivery}}
	for range len(c.unreplicated) {
		next := <-c.unreplicated
		all[next.readOn] = append(all[next.readOn], next.Delivery)
	}
	for readOn, deliveries := range all { // more than one server during a failover
		if err := txn.Replicated(ctx, c.pool, readOn); err != nil {
			c.away.Store(true)
			c.emit(ctx, pawl.Event{Kind: pawl.EventError, Op: "consumer.replicated", Count: len(deliveries), Err: err})
			c.giveBack(ctx, pace.Jittered(2*time.Second), deliveries...)
			continue
		}
		for _, d := range deliveries {
			c.acks <- receiptOf(d)
		}
	}
}

// ackAll acknowledges receipts in small batches until stopped, and then the remaining ones.
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

// gather collects the receipts that arrive within ackLinger, up to a batch. If a sender waits for
// the acknowledgement, it takes only the receipts that are already there.
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

// ack acknowledges receipts. It does not retry: an unacknowledged message returns and is absorbed.
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

// giveBack releases deliveries, those of one ordering key together. If that fails, the broker
// redelivers them later.
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

// release calls the source's Release unless the source is finished.
func (c *Consumer) release(ctx context.Context, wait time.Duration, ds ...pawl.Delivery) error {
	c.source.RLock()
	defer c.source.RUnlock()
	if c.source.done {
		return nil // an abandoned handler's: the source gave its deliveries up in Finish
	}
	return callback.Do("Source.Release", func() error { return c.cfg.Source.Release(ctx, wait, ds...) })
}
