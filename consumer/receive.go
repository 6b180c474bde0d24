package consumer

import (
	"context"
	crypto "crypto/rand"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/callback"
	"github.com/pawl-go/pawl/internal/delivery"
	"github.com/pawl-go/pawl/internal/pace"
	"github.com/pawl-go/pawl/internal/txn"
	"github.com/pawl-go/pawl/internal/watched"
)

// defaultBatch is how many deliveries are requested at once and acknowledged in one call, if the
// source declares nothing: the largest batch of SQS. It is also the most that a crash leaves
// fetched, not started, and invisible until the timeout. maxHint bounds what a source may declare.
const (
	defaultBatch = 10
	maxHint      = 10_000
)

// pingPatience bounds each step of the probe that asks whether the database is back. shortProbe
// bounds the pause between probes during shortAbsence, long enough for a switchover, and
// longestProbe afterwards.
const (
	pingPatience = 5 * time.Second
	shortAbsence = 10 * time.Second
	shortProbe   = 500 * time.Millisecond
	longestProbe = 2 * time.Second
)

// longestBackoff bounds the pause after errors of the source, or after setbacksAtOnce setbacks.
const longestBackoff = 20 * time.Second

// receive fetches batches and hands them to the handling goroutines, at most one batch ahead, until
// ctx ends. Deliveries fetched and not started by then are released at once. The last call gets the
// ended ctx, as [pawl.Source] requires.
//
// receive: a crash after it costs a redelivery when the source's invisibility ends.
func (c *Consumer) receive(ctx context.Context, work chan<- pawl.Delivery) {
	for failures, stopped := 0, false; !stopped; {
		c.awaitDatabase(ctx)
		c.awaitBound(ctx)
		most := c.awaitFlood(ctx)
		c.groups.awaitRoom(ctx)
		stopped = ctx.Err() != nil
		batch, err := c.received(ctx, most)
		c.loop.Tick()
		for _, d := range c.groups.join(c.filter(ctx, batch)) {
			select {
			case work <- d:
			case <-ctx.Done():
				c.giveBack(ctx, 0, c.groups.disband(d)...)
			}
		}
		if err == nil || ctx.Err() != nil {
			failures = 0
			continue
		}
		failures++
		c.emit(ctx, pawl.Event{Kind: pawl.EventReceiveFailed, Op: "consumer.receive", Err: err})
		pace.Sleep(ctx, pace.Jittered(backoff(failures)))
	}
}

func (c *Consumer) received(ctx context.Context, most int) (batch []pawl.Delivery, err error) {
	err = callback.Do("Source.Receive", func() (err error) {
		batch, err = c.cfg.Source.Receive(ctx, most)
		return err
	})
	return batch, err
}

// awaitDatabase pauses receiving while the database is unavailable. Deliveries could only be
// released, and the broker would count receives and dead-letter good messages (trap T43). If probes
// succeed while our own transactions still fail, receiving slows down.
func (c *Consumer) awaitDatabase(ctx context.Context) {
	if !c.away.Load() {
		return
	}
	failures, since := 0, time.Now()
	for c.probe(ctx) != nil && ctx.Err() == nil {
		c.setbacks.Store(0)
		failures++
		longest := longestProbe
		if time.Since(since) < shortAbsence {
			longest = shortProbe
		}
		pace.Sleep(ctx, pace.Jittered(min(backoff(failures), longest)))
	}
	c.away.Store(false)
	if failures > 0 {
		c.pool.Reset() // a connection made meanwhile may stay read-only
	} else if again := int(c.setbacks.Add(1)) - setbacksAtOnce; again > 0 {
		pace.Sleep(ctx, pace.Jittered(backoff(again)))
	}
}

// setbacksAtOnce is how many successful probes in a row, while deliveries fail through the
// database, do not yet slow receiving down.
const setbacksAtOnce = 3

// probe tests what a delivery needs of the database. It claims a key as the first statement of a
// transaction that is rolled back, and locks the tables that a delivery may write to. If there are
// synchronous standbys, it also commits.
func (c *Consumer) probe(ctx context.Context) error {
	key := reservedPrefix + "probe/" + crypto.Text()
	pending, err := delivery.Prepare(pawl.Intent{Scope: c.cfg.Name, Key: key, Fingerprint: pawl.FingerprintOf()}, delivery.Lane{})
	if err != nil {
		return err
	}
	tx, err := txn.Opener{Pool: c.pool, Limit: pingPatience}.Open(ctx, "consumer.probe", "", pingPatience, pending.Queue)
	if err != nil {
		return err
	}
	defer txn.Rollback(ctx, tx)
	ctx, cancel := context.WithTimeout(ctx, pingPatience)
	defer cancel()
	if err := delivery.Writable(ctx, tx); err != nil {
		return err
	}
	var on string
	if err := tx.QueryRow(ctx, "select "+watched.ReadOn).Scan(&on); err != nil {
		return pawl.Wrap("consumer.probe", err)
	}
	txn.Rollback(ctx, tx)
	return txn.Replicated(ctx, c.pool, on)
}

func backoff(failures int) time.Duration {
	return min(250*time.Millisecond<<min(failures-1, 10), longestBackoff)
}
